--[[
  Remove a run, live or ended. Its readers end with `lost`, its publisher with RunLost.

  Returns {'deleted'} or {'gone'}
]]
local there = redis.call('EXISTS', STATE) == 1
remove()
return { there and 'deleted' or 'gone' }
