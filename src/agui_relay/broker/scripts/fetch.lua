--[[
  Give a worker the next items of a run.

  ARGV   4 the worker's ready entry  5 'epoch:version' of the continuation it has, '' for none
         6 most items  7 most bytes (at least one item is given)  8 '1' when the entry was claimed from another worker

  Claims without a commit in between are counted: an item may kill those who take it. From the second on the items
  that were given until then are suspected, and stay so until they are committed.

  An entry that has nothing to give is settled here, so that none stays pending.

  Returns
    {'items', epoch, cursor, position, version, continuation or '', thread id, claims, item ...}
    {'idle'}                                nothing to do, or another entry holds the run
    {'lost'}                                unread items are missing: the run was removed
    {'gone'}
]]
local entry, cached, most, limit = ARGV[4], ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7])

local state = redis.call('HMGET', STATE, 'epoch', 'cursor', 'position', 'version', 'thread', 'last', 'ready', 'unread',
  'tries')
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

local tries = tonumber(state[9] or 0)
if ARGV[8] == '1' then
  tries = tries + 1
  redis.call('HSET', STATE, 'tries', tries)
  if tries == 2 then
    redis.call('HSET', STATE, 'wary', whole(cursor + most))
  end
end
if tries >= 2 then
  most = 1
end

local reply = { 'items', epoch, cursor, tonumber(state[3]), state[4], '', state[5], tries }
if cached ~= epoch .. ':' .. state[4] then
  reply[6] = redis.call('HGET', STATE, 'continuation') or ''
end

if read_items(reply, cursor, last, tonumber(state[8]), most, limit) == 0 then
  remove()
  return { 'lost' }
end
return reply
