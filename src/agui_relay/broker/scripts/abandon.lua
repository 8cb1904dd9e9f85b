--[[
  End a run whose publisher is gone. What it has stored is still projected; then the run is `abandoned`.

  ARGV   4 the publisher's token, or '' for a sweep, which only ends runs whose lease is over
         5 ms an ended run is kept  6 epoch, '' for any

  Returns
    {'abandoned'}                           now, or as soon as its unread items are projected
    {'live'}                                the lease is not over
    {'ended', status}                       it had its terminal item, or was abandoned before
    {'fenced', status}                      the token is not the run's; status '' in another life
    {'gone'}
]]
local token, kept = ARGV[4], tonumber(ARGV[5])

local state = redis.call('HMGET', STATE, 'epoch', 'token', 'status', 'last', 'cursor', 'position', 'ready')
if not state[1] then
  redis.call('ZREM', LEASES, RUN)
  redis.call('ZREM', RUNS, RUN)
  return { 'gone' }
end
local epoch, status, position = state[1], state[3], tonumber(state[6])
if ARGV[6] ~= '' and ARGV[6] ~= epoch then
  return { 'fenced', '' }
end
if token ~= '' and state[2] ~= token then
  return { 'fenced', status }
end
if status ~= 'live' then
  redis.call('ZREM', LEASES, RUN)
  return { 'ended', status }
end
if token == '' then
  local lease = redis.call('ZSCORE', LEASES, RUN)
  if lease and tonumber(lease) > now() then
    return { 'live' }
  end
end

-- Without its token the publisher, should it only have been slow, can write no more.
redis.call('HSET', STATE, 'token', '', 'status', 'closing', 'outcome', 'abandoned')
redis.call('ZREM', LEASES, RUN)
if tonumber(state[4]) > tonumber(state[5]) then
  ensure_queued(state[7])
else
  conclude('abandoned', kept)
  to_subscriptions(function() return announcement(epoch, position + 1, position, 'abandoned') end)
end
return { 'abandoned' }
