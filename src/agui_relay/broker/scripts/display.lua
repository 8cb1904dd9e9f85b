--[[
  Read the display checkpoint of a run for one view, with the run's state of the same moment.

  ARGV   4 view

  Returns {epoch, position, status, position that the checkpoint covers, its snapshot}; the last two are -1 and '' when
  none is stored. {'', 0, 'gone', -1, ''} when there is no such run
]]
local state = redis.call('HMGET', STATE, 'epoch', 'position', 'status')
if not state[1] then
  return { '', 0, 'gone', -1, '' }
end
local stored = redis.call('HMGET', DISPLAY, 'position', ARGV[4])
local covered = stored[2] and tonumber(stored[1])
return { state[1], tonumber(state[2]), state[3], covered or -1, covered and stored[2] or '' }
