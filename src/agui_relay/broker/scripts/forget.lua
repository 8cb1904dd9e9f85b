--[[
  Delete a consumer of the ready stream if nothing is pending for it: entries of a deleted consumer are lost.

  KEYS 7 ready    ARGV 4 consumer

  Returns {'forgotten'} or {'pending', number}
]]
local consumers = redis.call('XINFO', 'CONSUMERS', READY, GROUP)
for _, row in ipairs(consumers) do
  local info = {}
  for index = 1, #row, 2 do
    info[row[index]] = row[index + 1]
  end
  if info['name'] == ARGV[4] and info['pending'] > 0 then
    return { 'pending', info['pending'] }
  end
end
redis.call('XGROUP', 'DELCONSUMER', READY, GROUP, ARGV[4])
return { 'forgotten' }
