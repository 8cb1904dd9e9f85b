--[[
  Give a worker the next items of a run.

  ARGV   4 the worker's ready entry  5 'epoch:version' of the continuation it has, '' for none
         6 most items  7 most bytes (at least one item is given)

  An entry that has nothing to give is settled here, so that none stays pending.

  Returns
    {'items', epoch, cursor, position, version, continuation or '', thread id, item ...}
    {'idle'}                                nothing to do, or another entry holds the run
    {'lost'}                                unread items are missing: the run was removed
    {'gone'}
]]
local entry, cached, most, limit = ARGV[4], ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7])

local state = redis.call('HMGET', STATE, 'epoch', 'cursor', 'position', 'version', 'thread', 'last', 'ready', 'unread')
if not state[1] then
  settle(entry)
  return { 'gone' }
end
local epoch, cursor, last, ready = state[1], tonumber(state[2]), tonumber(state[6]), state[7]
if ready ~= entry then
  settle(entry)
  if last > cursor then
    ensure_queued(ready)
  end
  return { 'idle' }
end
if last == cursor then
  settle(entry)
  redis.call('HDEL', STATE, 'ready')
  return { 'idle' }
end

local reply = { 'items', epoch, cursor, tonumber(state[3]), tonumber(state[4]), '', state[5] }
if cached ~= epoch .. ':' .. state[4] then
  reply[6] = redis.call('HGET', STATE, 'continuation') or ''
end

-- One read when all that is unread fits, else small ones: a script must not build what it will not send.
local step = (tonumber(state[8]) <= limit) and most or 8
local next, bytes, done = cursor + 1, 0, false
while not done do
  local rows = redis.call('XRANGE', ITEMS, whole(next) .. '-0', '+', 'COUNT', math.min(step, most - (next - cursor - 1)))
  for _, row in ipairs(rows) do
    local item = row[2][2]
    if row[1] ~= whole(next) .. '-0' then
      remove()
      return { 'lost' }
    end
    bytes = bytes + #item
    if next > cursor + 1 and bytes > limit then
      done = true
      break
    end
    reply[#reply + 1] = item
    next = next + 1
  end
  if #rows == 0 or next > last or next - cursor > most then
    done = true
  end
end
if next == cursor + 1 then
  remove()
  return { 'lost' }
end
return reply
