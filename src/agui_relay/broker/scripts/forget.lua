--[[
  Delete a consumer of the ready stream if nothing is pending for it: entries of a deleted consumer are lost.

  Of a partition, without the prelude.

  KEYS   1 ready
  ARGV   1 group  2 consumer

  Returns {'forgotten'} or {'pending', number}
]]
local consumers = redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])
for _, row in ipairs(consumers) do
  local info = {}
  for index = 1, #row, 2 do
    info[row[index]] = row[index + 1]
  end
  if info['name'] == ARGV[2] and info['pending'] > 0 then
    return { 'pending', info['pending'] }
  end
end
redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[2])
return { 'forgotten' }
