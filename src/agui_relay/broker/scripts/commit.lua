--[[
  Store the frames of whole items, move the cursor and announce: the one place where frames get their positions.

  ARGV   4 the worker's ready entry  5 epoch  6 cursor that was read  7 new cursor  8 bytes of the items between
         9 '1' when the run's turn is over  10 ms an ended run is kept  11 bound of announced bytes x subscriptions
         12 bytes of the frame log that are kept  13 bytes of items behind the cursor, and of rejected ones, that are
         14 bytes of frames behind a display checkpoint until the next is due
         15 most of the next items to return, 0 for none  16 most bytes of them
         17 word for the new continuation, '' when it is as before  18 continuation
         19 number of frames f  20 number of rejected items r  21 number of views v
         then f times: frame, meta;  r times: ordinal, error, item;  v times: view, announced lines ('' = read the log)

  Returns
    {'ok', position, items left, status, views told, due, next item ...}
                                            views between spaces; due is 1 when the run's display checkpoint must go
                                            forward, 2 when the run should wait for that, else 0; the next items
                                            save a fetch; only while the worker's entry holds the run
    {'stale'}                               the cursor or the epoch is not what was read: nothing stored
    {'gone'}
]]
local entry, epoch, from, to = ARGV[4], ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7])
local consumed, turn_over, kept, fanout = tonumber(ARGV[8]), ARGV[9] == '1', tonumber(ARGV[10]), tonumber(ARGV[11])
local log_bound, items_bound, tail_bound = tonumber(ARGV[12]), tonumber(ARGV[13]), tonumber(ARGV[14])
local frames, rejected, views = tonumber(ARGV[19]), tonumber(ARGV[20]), tonumber(ARGV[21])

local state = redis.call('HMGET', STATE, 'epoch', 'cursor', 'position', 'last', 'ready', 'unread', 'status', 'outcome',
  'log', 'kept', 'aside', 'tries', 'wary', 'covered', 'tail', 'shown')
local ready = state[5]
if ready ~= entry then
  settle(entry)
end
if not state[1] then
  return { 'gone' }
end
local position, last, status = tonumber(state[3]), tonumber(state[4]), state[7]
if state[1] ~= epoch or tonumber(state[2]) ~= from or to > last then
  return { 'stale' }
end

local at = 22
local log, kept_items, aside = tonumber(state[9] or 0), tonumber(state[10] or 0) + consumed, tonumber(state[11] or 0)
local covered, tail = state[14], tonumber(state[15] or log)
for index = 1, frames do
  log, tail = log + #ARGV[at], tail + #ARGV[at]
  redis.call('XADD', FRAMES, whole(position + index) .. '-0', 'frame', ARGV[at], 'meta', ARGV[at + 1])
  at = at + 2
end
local outcome = state[8]
for _ = 1, rejected do
  if tonumber(ARGV[at]) == last and outcome ~= 'abandoned' then
    -- The terminal item, always the last one, told an outcome that nobody will see.
    outcome = 'failed'
  end
  aside = aside + #ARGV[at + 2]
  redis.call('XADD', REJECTED, ARGV[at] .. '-0', 'item', ARGV[at + 2], 'error', ARGV[at + 1])
  at = at + 3
end
local head = position + frames
log = trim_log(log, log_bound, covered, head)
local due = how_due(covered, tail, tonumber(state[16] or 0), log, tail_bound, log_bound)
kept_items = trim(ITEMS, kept_items, items_bound, to, function() return true end)
aside = trim(REJECTED, aside, items_bound, last, function() return true end)
local unread = math.max(0, tonumber(state[6]) - consumed)
redis.call('HSET', STATE, 'cursor', to, 'position', head, 'unread', whole(unread),
  'log', whole(log), 'tail', whole(tail), 'kept', whole(kept_items), 'aside', whole(aside))
if ARGV[17] ~= '' then
  redis.call('HSET', STATE, 'version', ARGV[17], 'continuation', ARGV[18])
end
if state[12] then
  -- Not this batch killed workers; what is left of those that may have is still taken one by one.
  if to == last or to >= tonumber(state[13] or 0) then
    redis.call('HDEL', STATE, 'tries', 'wary')
  else
    redis.call('HSET', STATE, 'tries', math.min(tonumber(state[12]), 2))
  end
end

if to < last then
  if ready == entry and turn_over then
    settle(entry)
    queue()
  elseif ready ~= entry then
    ensure_queued(ready)
  end
else
  if ready then
    settle(ready)
    redis.call('HDEL', STATE, 'ready')
  end
  if status == 'closing' then
    status = outcome
    conclude(status, kept)
  end
end
if (frames > 0 and lacks_expiry(FRAMES)) or (rejected > 0 and lacks_expiry(REJECTED)) then
  expire_together()
end

local told = {}
if frames > 0 or status ~= state[7] then
  local header = announcement(epoch, position + 1, head, status)
  local bodies, live = {}, redis.call('ZCARD', SUBS)
  for _ = 1, views do
    local body = ARGV[at + 1]
    bodies[ARGV[at]] = (body ~= '' and #body * live <= fanout) and (header .. '\n' .. body) or header
    at = at + 2
  end
  to_subscriptions(function(view)
    if not told[view] then
      told[view] = true
      told[#told + 1] = view
    end
    return bodies[view] or header
  end)
end
local reply = { 'ok', head, last - to, status, table.concat(told, ' '), due }
if ready == entry and not turn_over then
  read_items(reply, to, last, unread, tonumber(ARGV[15]), tonumber(ARGV[16]))
end
return reply
