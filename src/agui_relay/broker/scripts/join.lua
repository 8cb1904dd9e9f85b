--[[
  Give a subscription its lease, or renew it, and answer in its own channel: there, in order with the frames, the
  answer tells the reader what it should have.

  ARGV   4 view  5 subscription id  6 lease ms  7 ms a live run is kept  8 word to be found in the echo

  Returns {epoch or '', head, status or 'gone', oldest position in the log or 0}
]]
local view, id, lease, kept, nonce = ARGV[4], ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8]

local time = now()
redis.call('ZADD', SUBS, whole(time + lease), view .. ':' .. id)
local state = redis.call('HMGET', STATE, 'epoch', 'position', 'status', 'last', 'cursor', 'ready')
if not state[1] then
  redis.call('PEXPIREAT', SUBS, whole(time + 2 * lease))
  publish(CHANNEL .. id, echo('', 0, 'gone', nonce))
  return { '', 0, 'gone', 0 }
end
local epoch, head, status = state[1], tonumber(state[2]), state[3]
if status == 'live' then
  expire_at(time + kept)
else
  expire_together()
end
if tonumber(state[4]) > tonumber(state[5]) then
  ensure_queued(state[6])
end
publish(CHANNEL .. id, echo(epoch, head, status, nonce))
local oldest = redis.call('XRANGE', FRAMES, '-', '+', 'COUNT', 1)
return { epoch, head, status, oldest[1] and tonumber(string.match(oldest[1][1], '^%d+')) or 0 }
