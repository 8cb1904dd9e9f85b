--[[
  Open a run for one publisher: create it, or let the holder of its token take it up again.

  ARGV   4 token  5 epoch for a new life  6 thread id, '' when not known yet  7 lease ms  8 ms a live run is kept

  Returns
    {'opened', epoch}                       a new life; what an earlier one left is removed, except `subs`:
                                            readers may be waiting in it, and are told
    {'resumed', epoch, last ordinal, status, thread id}   the token is the run's
    {'busy'}                                another publisher holds the live run
    {'ended', status}                       the run is over; it must be deleted before its id is used again
    {'thread', thread id}                   the run belongs to another thread
]]
local token, epoch, thread, lease, kept = ARGV[4], ARGV[5], ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[8])

local state = redis.call('HMGET', STATE, 'epoch', 'token', 'status', 'last', 'thread')
local time = now()

if state[1] then
  local status = state[3]
  if state[2] ~= token then
    return { (status == 'live') and 'busy' or 'ended', status }
  end
  if thread ~= '' and state[5] ~= '' and state[5] ~= thread then
    return { 'thread', state[5] }
  end
  if status == 'live' then
    redis.call('ZADD', LEASES, whole(time + lease), RUN)
    expire_at(time + kept)
  end
  return { 'resumed', state[1], tonumber(state[4]), status, state[5] }
end

redis.call('DEL', ITEMS, FRAMES, REJECTED, DISPLAY)
redis.call('HSET', STATE, 'epoch', epoch, 'token', token, 'thread', thread, 'status', 'live',
  'last', 0, 'cursor', 0, 'position', 0, 'unread', 0, 'version', '')
redis.call('ZADD', LEASES, whole(time + lease), RUN)
redis.call('ZADD', RUNS, whole(time), RUN)
expire_at(time + kept)
to_subscriptions(function() return announcement(epoch, 1, 0, 'live') end)
return { 'opened', epoch }
