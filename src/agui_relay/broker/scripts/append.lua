--[[
  Store items of one publisher; without items, renew its lease.

  ARGV   4 token  5 last ordinal the publisher knows as stored  6 lease ms  7 ms a live run is kept
         8 bound of unread bytes  9 thread id  10 epoch, '' for any
         11 a line for each item: sequence, outcome ('-' unless it is the run's terminal item), source run id
         then the items

  The ready entry of a run that had nothing unread carries a small append itself, with what a worker must know beside
  it, so that a worker that still has the continuation needs no fetch.

  An item whose sequence is not above the last one stored for its source run is a repeat and is skipped.

  Returns
    {'ok', last ordinal, items stored}
    {'full', unread bytes}                  too much is unread: nothing stored, the lease is renewed
    {'hole', last ordinal}                  the server knows less than it has acknowledged: nothing stored
    {'ended', status}                       a new item for a run that has its terminal item
    {'fenced', status}                      the token is not, or no longer, the run's; status '' in another life
    {'gone'}
]]
-- Larger ones would only fill the ready stream.
local INLINE_BYTES = 16384

local token, known, lease, kept = ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local bound, thread = tonumber(ARGV[8]), ARGV[9]

local state = redis.call('HMGET', STATE, 'epoch', 'token', 'status', 'last', 'cursor', 'unread', 'ready', 'thread',
  'version', 'position')
if not state[1] then
  return { 'gone' }
end
local status, last, cursor, unread = state[3], tonumber(state[4]), tonumber(state[5]), tonumber(state[6])
if ARGV[10] ~= '' and ARGV[10] ~= state[1] then
  return { 'fenced', '' }
end
if state[2] ~= token then
  return { 'fenced', status }
end
if last < known then
  return { 'hole', last }
end

local sequences, fresh, bytes, outcome = {}, {}, 0, ''
local at = 11
for sequence, ends, source in string.gmatch(ARGV[11], '(%d+) (%S+) ([^\n]+)') do
  at = at + 1
  sequence = tonumber(sequence)
  local field = 'seq:' .. source
  if not sequences[field] then
    sequences[field] = tonumber(redis.call('HGET', STATE, field) or -1)
  end
  if sequence > sequences[field] then
    if outcome ~= '' then
      return { 'ended', 'closing' }
    end
    sequences[field] = sequence
    fresh[#fresh + 1] = at
    bytes = bytes + #ARGV[at]
    outcome = (ends ~= '-') and ends or ''
  end
end
if #fresh > 0 and status ~= 'live' then
  return { 'ended', status }
end

local time = now()
if #fresh > 0 and unread > 0 and unread + bytes > bound then
  redis.call('ZADD', LEASES, whole(time + lease), RUN)
  return { 'full', unread }
end

if #fresh > 0 then
  for index, at in ipairs(fresh) do
    redis.call('XADD', ITEMS, whole(last + index) .. '-0', 'item', ARGV[at])
  end
  last = last + #fresh
  redis.call('HSET', STATE, 'last', last, 'unread', whole(unread + bytes))
  for field, sequence in pairs(sequences) do
    redis.call('HSET', STATE, field, whole(sequence))
  end
  redis.call('ZADD', RUNS, whole(time), RUN)
end
if state[8] == '' and thread ~= '' then
  redis.call('HSET', STATE, 'thread', thread)
end
if outcome ~= '' then
  redis.call('HSET', STATE, 'status', 'closing', 'outcome', outcome)
  redis.call('ZREM', LEASES, RUN)
elseif status == 'live' then
  redis.call('ZADD', LEASES, whole(time + lease), RUN)
end
-- The keys expire together, so that one tells of all; a thousandth of the time is not worth six calls an append.
if status == 'live' and redis.call('PEXPIRETIME', ITEMS) < time + kept * 0.999 then
  expire_at(time + kept)
end
local read_before = last - #fresh == cursor
if #fresh > 0 and read_before and not state[7] and bytes <= INLINE_BYTES then
  local items = {}
  for index, at in ipairs(fresh) do
    items[index] = ARGV[at]
  end
  queue('epoch', state[1], 'cursor', cursor, 'position', state[10], 'version', state[9],
    'thread', state[8] ~= '' and state[8] or thread, 'items', table.concat(items, '\n'))
elseif last > cursor then
  ensure_queued(state[7])
end
return { 'ok', last, #fresh }
