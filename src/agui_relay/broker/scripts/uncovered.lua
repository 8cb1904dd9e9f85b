--[[
  Give a worker what it needs to make the next display checkpoint of a run, if one is due.

  ARGV   4 epoch  5 bytes of the frame log that are kept  6 bytes of frames behind a checkpoint until the next is due

  Returns
    {'due', position covered, head, bytes of the frames between, bytes of the frame log,
            position of the checkpoint stored or '', its `full` or '', its `chat` or ''}
    {'well'}                                none is due
    {'stale'}                               another life
    {'gone'}
]]
local state = redis.call('HMGET', STATE, 'epoch', 'position', 'log', 'covered', 'tail', 'shown')
if not state[1] then
  return { 'gone' }
end
if state[1] ~= ARGV[4] then
  return { 'stale' }
end
local head, log, covered = tonumber(state[2]), tonumber(state[3] or 0), state[4]
local tail = tonumber(state[5] or log)
if how_due(covered, tail, tonumber(state[6] or 0), log, tonumber(ARGV[6]), tonumber(ARGV[5])) == 0 then
  return { 'well' }
end
local stored = redis.call('HMGET', DISPLAY, 'position', 'full', 'chat')
return { 'due', tonumber(covered or 0), head, tail, log, stored[1] or '', stored[2] or '', stored[3] or '' }
