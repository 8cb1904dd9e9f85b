--[[
  Read the display checkpoint of a run for one view, with the run's state of the same moment.

  ARGV   4 view

  Returns {epoch, position, status, position that the checkpoint covers, its snapshot, bytes of the frames behind it};
  the covered position and the snapshot are -1 and '' when none is stored. {'', 0, 'gone', -1, '', 0} when there is no
  such run
]]
local state = redis.call('HMGET', STATE, 'epoch', 'position', 'status', 'tail', 'log')
if not state[1] then
  return { '', 0, 'gone', -1, '', 0 }
end
local stored = redis.call('HMGET', DISPLAY, 'position', ARGV[4])
local covered = stored[2] and tonumber(stored[1])
local tail = tonumber(state[4] or state[5] or 0)
return { state[1], tonumber(state[2]), state[3], covered or -1, covered and stored[2] or '', tail }
