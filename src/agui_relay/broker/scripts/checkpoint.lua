--[[
  Store a run's next display checkpoint and trim the frame log behind it; or give its display up, so that the log is
  trimmed all the same.

  ARGV   4 epoch  5 position that was covered when the work began, 0 for none
         6 position of the checkpoint, the last frame of an event; 'none' to give up  7 bytes of the frames between
         8 bytes of the frame log that are kept  9 bytes of the snapshots, unpacked
         10 snapshot of the view `full`, packed  11 of `chat`

  Returns
    {'ok'}
    {'stale'}                               another life, or another worker was faster: nothing stored
    {'gone'}
]]
local epoch, from, to, folded, bound = ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])

local state = redis.call('HMGET', STATE, 'epoch', 'position', 'log', 'covered', 'tail')
if not state[1] then
  return { 'gone' }
end
local head, log = tonumber(state[2]), tonumber(state[3] or 0)
-- Of a run that was given up the number is nil, which is no position.
if state[1] ~= epoch or tonumber(state[4] or 0) ~= from or (to and (to <= from or to > head)) then
  return { 'stale' }
end

local covered, tail, shown = 'none', 0, 0
if to then
  covered, tail, shown = whole(to), math.max(0, tonumber(state[5] or log) - folded), tonumber(ARGV[9])
  redis.call('HSET', DISPLAY, 'position', covered, 'full', ARGV[10], 'chat', ARGV[11])
else
  redis.call('DEL', DISPLAY)
end
log = trim_log(log, bound, covered, head)
redis.call('HSET', STATE, 'covered', covered, 'tail', whole(tail), 'shown', whole(shown), 'log', whole(log))
expire_together()
return { 'ok' }
