--[[
  See to it that a run is on the way to a worker while it has unread items, and that a live one has a lease.

  ARGV   4 a ready entry that its worker gives back, '' for none  5 lease ms

  Returns {'queued'}, {'well'} or {'gone'}
]]
local given, lease = ARGV[4], tonumber(ARGV[5])

-- A worker gets an entry when it is new to the group, or when it is pending and so can be claimed.
local function can_be_had(entry)
  if #redis.call('XRANGE', READY, entry, entry) == 0 then
    return false
  end
  for _, row in ipairs(redis.call('XINFO', 'GROUPS', READY)) do
    local group = {}
    for index = 1, #row, 2 do
      group[row[index]] = row[index + 1]
    end
    if group['name'] == GROUP then
      local time, number = string.match(entry, '^(%d+)-(%d+)$')
      local last_time, last_number = string.match(group['last-delivered-id'], '^(%d+)-(%d+)$')
      if tonumber(time) ~= tonumber(last_time) then
        return tonumber(time) > tonumber(last_time) or #redis.call('XPENDING', READY, GROUP, entry, entry, 1) > 0
      end
      return tonumber(number) > tonumber(last_number) or #redis.call('XPENDING', READY, GROUP, entry, entry, 1) > 0
    end
  end
  -- The group will be made at the beginning of the stream.
  return true
end

local state = redis.call('HMGET', STATE, 'last', 'cursor', 'ready', 'status')
local ready = state[3]
if given ~= '' then
  settle(given)
end
if not state[1] then
  redis.call('ZREM', RUNS, RUN)
  return { 'gone' }
end
if state[4] == 'live' and not redis.call('ZSCORE', LEASES, RUN) then
  redis.call('ZADD', LEASES, whole(now() + lease), RUN)
end
if tonumber(state[1]) == tonumber(state[2]) then
  if ready then
    settle(ready)
    redis.call('HDEL', STATE, 'ready')
  end
  return { 'well' }
end
if ready and can_be_had(ready) then
  return { 'well' }
end
if ready then
  settle(ready)
end
queue()
return { 'queued' }
