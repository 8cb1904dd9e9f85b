--[[
  Read a run's state and a part of its log, of the same moment: for clients that have no transactions.

  ARGV   4 first position  5 most frames

  Returns {epoch, position, status, log entries} or {'', 0, 'gone', {}}
]]
local state = redis.call('HMGET', STATE, 'epoch', 'position', 'status')
if not state[1] then
  return { '', 0, 'gone', {} }
end
return { state[1], tonumber(state[2]), state[3], redis.call('XRANGE', FRAMES, ARGV[4] .. '-0', '+', 'COUNT', ARGV[5]) }
