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

if read_items(reply, cursor, last, tonumber(state[8]), most, limit) == 0 then
  remove()
  return { 'lost' }
end
return reply
