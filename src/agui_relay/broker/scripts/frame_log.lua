-- How the frame log is kept within its bound, and when the display checkpoint must go forward for that.
--
-- In the state: `covered`, the position of the checkpoint, missing before the first, 'none' when the run's frames could
-- not be folded; `tail`, bytes of the frames behind it; `shown`, bytes of its snapshots, unpacked; `log`, bytes of the frames kept.

-- Whole events: the log begins with the first frame of one (its flags are odd).
local function may_begin(row)
  return string.byte(row[2][4]) % 2 == 1
end

-- Drop the oldest frames once there are more than `bound` bytes; only what the checkpoint covers. Return the bytes left.
local function trim_log(log, bound, covered, head)
  if not covered then
    return log
  end
  return trim(FRAMES, log, bound, covered == 'none' and head or tonumber(covered), may_begin)
end

-- A checkpoint costs what it shows and what it folds. It waits until the latter is as much, so that all checkpoints of a
-- run together cost no more than a few times its frames; unless the log is full of what is not covered. Return 1 when the
-- next one is due, 2 when so much is that the run should wait for it, else 0.
local function how_due(covered, tail, shown, log, tail_bound, log_bound)
  local enough = math.max(tail_bound, shown)
  if covered == 'none' or tail == 0 or (tail <= enough and log <= log_bound) then
    return 0
  end
  return (tail > 2 * enough or log > log_bound) and 2 or 1
end
