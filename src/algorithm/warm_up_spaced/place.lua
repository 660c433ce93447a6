-- Reads a state `now`: the instant `at`, which is never before the last write, the `backlog` until the next departure, and the `warmth` then.
local at, backlog, warmth = now, 0, 0
if state then
  local most, period, micro = rule[7], rule[8], 1000 * 2 ^ rule[2]
  local micros, ticks
  at = math.max(now, state[2])
  micros, ticks, warmth = left(rule, state)
  micros = micros - (at - state[2])
  -- Beyond the period and a microsecond, how long a pause was makes no difference.
  backlog = math.max(micros, -div_ceil(period, micro) - 1) * micro + ticks
  if backlog <= 0 then
    local cooled, rounded = most, 0
    if -backlog < period then
      cooled, rounded = mul_div(-backlog, rule[9], rule[10])
    end
    backlog, warmth = 0, math.max(0, math.min(warmth, most) - cooled - rounded)
  end
end
