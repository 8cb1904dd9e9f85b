--[[
  What every script of a run begins with.

  KEYS   1 state  2 items  3 frames  4 subs  5 rejected  6 display     of the run
         7 ready  8 leases  9 runs                                     of its partition
  ARGV   1 run id  2 channel prefix  3 PUBLISH or SPUBLISH             the script's own begin at 4

  Every reply is an array whose first element is a word. A run without state answers 'gone'.
  Checks come before the first write: an error does not undo what was written.
]]
local STATE, ITEMS, FRAMES, SUBS, REJECTED, DISPLAY, READY, LEASES, RUNS = unpack(KEYS)
local RUN, CHANNEL, PUBLISH = ARGV[1], ARGV[2], ARGV[3]
local GROUP = 'projectors'
local RUN_KEYS = { STATE, ITEMS, FRAMES, SUBS, REJECTED, DISPLAY }

local function now()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

local function whole(number)
  return string.format('%d', number)
end

-- A life must never expire in parts.
local function expire_at(at)
  for _, key in ipairs(RUN_KEYS) do
    redis.call('PEXPIREAT', key, whole(at))
  end
end

-- Of a key made after the last renewal; one that is not there never lacks it.
local function lacks_expiry(key)
  return redis.call('PEXPIRETIME', key) == -1
end

-- A key made after the last renewal takes the expiry that the others have.
local function expire_together()
  local at = redis.call('PEXPIRETIME', STATE)
  if at > 0 then
    expire_at(at)
  end
end

local function settle(entry)
  redis.call('XACK', READY, GROUP, entry)
  redis.call('XDEL', READY, entry)
end

local function queue(...)
  local entry = redis.call('XADD', READY, '*', '__data__', RUN, ...)
  redis.call('HSET', STATE, 'ready', entry)
end

-- Append the items behind `cursor` to `reply`: at most `most`, and `limit` bytes, but at least one.
-- Return how many; 0 when they are not there.
local function read_items(reply, cursor, last, unread, most, limit)
  -- One read when all that is unread fits, else small ones: a script must not build what it will not send.
  local step = (unread <= limit) and most or 8
  local next, bytes = cursor + 1, 0
  while next <= last and next - cursor <= most do
    local rows = redis.call('XRANGE', ITEMS, whole(next) .. '-0', '+', 'COUNT', math.min(step, most - (next - cursor - 1)))
    if #rows == 0 then
      break
    end
    for _, row in ipairs(rows) do
      local item = row[2][2]
      bytes = bytes + #item
      if row[1] ~= whole(next) .. '-0' or (next > cursor + 1 and bytes > limit) then
        return next - cursor - 1
      end
      reply[#reply + 1] = item
      next = next + 1
    end
  end
  return next - cursor - 1
end

-- Drop the oldest rows of a stream once its `size` bytes (of first fields) are above `bound`; return the bytes left.
-- Only rows up to number `last` go, and the rest begins with a row that may be first. A quarter of the bound is made
-- free at once, so that not every commit of a long run has to look.
local function trim(stream, size, bound, last, may_be_first)
  if size <= bound then
    return size
  end
  local goal, left, kept, cut, from = bound - math.floor(bound / 4), size, size, nil, '-'
  local done, exhausted = false, false
  while not done do
    local rows = redis.call('XRANGE', stream, from, '+', 'COUNT', 64)
    exhausted = #rows == 0
    done = exhausted
    for _, row in ipairs(rows) do
      local beyond = tonumber(string.match(row[1], '^%d+')) > last
      if may_be_first(row) then
        cut, kept = row[1], left
        beyond = beyond or left <= goal
      end
      if beyond then
        done = true
        break
      end
      left = left - #row[2][2]
      from = '(' .. row[1]
    end
  end
  if cut then
    redis.call('XTRIM', stream, 'MINID', '=', cut)
  end
  if exhausted then
    -- The count was of rows that are not there any more: somebody removed the stream by hand.
    kept = cut and kept - left or 0
  end
  return kept
end

-- Queue the run unless the entry that its state knows is still there.
local function ensure_queued(entry)
  if not entry or #redis.call('XRANGE', READY, entry, entry) == 0 then
    queue()
  end
end

-- Pub/sub is only for those who listen here and now: it must not go into replication.
local function publish(channel, message)
  redis.set_repl(redis.REPL_NONE)
  redis.call(PUBLISH, channel, message)
  redis.set_repl(redis.REPL_ALL)
end

-- Call `message(view)` for every live subscription and publish what it returns.
local function to_subscriptions(message)
  redis.call('ZREMRANGEBYSCORE', SUBS, '-inf', whole(now()))
  local members = redis.call('ZRANGE', SUBS, 0, -1)
  for _, member in ipairs(members) do
    local view, id = string.match(member, '^([^:]*):(.+)$')
    publish(CHANNEL .. id, message(view))
  end
end

-- The epoch is a word of letters and digits, so that it needs no escape.
local function announcement(epoch, first, last, status)
  return string.format('{"epoch":"%s","first":%d,"last":%d,"status":"%s"}', epoch, first, last, status)
end

local function echo(epoch, head, status, nonce)
  return string.format('{"epoch":"%s","head":%d,"status":"%s","echo":"%s"}', epoch, head, status, nonce)
end

-- All items are projected and no more can come: the run has its outcome and its keys are kept for `kept` ms.
local function conclude(outcome, kept)
  redis.call('HSET', STATE, 'status', outcome)
  redis.call('ZREM', LEASES, RUN)
  expire_at(now() + kept)
end

-- Remove the run; whoever reads it is told.
local function remove()
  local entry = redis.call('HGET', STATE, 'ready')
  if entry then
    settle(entry)
  end
  to_subscriptions(function() return echo('', 0, 'gone', '') end)
  redis.call('DEL', STATE, ITEMS, FRAMES, REJECTED, DISPLAY)
  redis.call('PEXPIRE', SUBS, 60000)
  redis.call('ZREM', LEASES, RUN)
  redis.call('ZREM', RUNS, RUN)
end
