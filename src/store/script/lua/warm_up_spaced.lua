-- Time is counted in ticks, of which a nanosecond has 2 ^ bits.
--
-- rule: kind, bits, longest wait, capacity, price of a permit and by what that is divided, greatest warmth, period,
-- what a pause cools and by what that is divided, climb, rise of the line, and by what that is divided
-- state: kind, written at, backlog and warmth, bits
local WARM_UP_SPACED = 9
local FINEST = 32

shapes[WARM_UP_SPACED] = function(state)
  local bits = state[5]
  return #state == 5 and is_natural(state[2]) and is_natural(state[3]) and is_natural(state[4])
    and is_natural(bits) and bits <= FINEST
end

-- What of a state is left: whole microseconds of its backlog and ticks beyond them, rounded up, and its warmth,
-- rounded down; in ticks of this rule.
local function left(rule, state)
  local micro, scale = 1000 * 2 ^ state[5], 2 ^ (rule[2] - state[5])
  local micros = div_floor(state[3], micro)
  local ticks = math.ceil((state[3] - micros * micro) * scale)
  -- A tick more than the greatest tells that it was cut.
  return micros, ticks, math.min(math.floor(state[4] * scale), rule[7] + 1)
end

ends[WARM_UP_SPACED] = function(rule, state)
  local micros, ticks, warmth = left(rule, state)
  warmth = math.min(warmth, rule[7])
  if warmth > 0 then
    -- The least idle time whose cooling, rounded up, is all of it.
    ticks = ticks + mul_div(warmth - 1, rule[10], rule[9]) + 1
  end
  return state[2] + micros + div_ceil(ticks, 1000 * 2 ^ rule[2])
end

-- Returns an instant that is never before the last write, the wait from then to the next departure, and the warmth at that.
local function place(rule, state, now)
  if not state then
    return now, 0, 0
  end
  local most, period, micro = rule[7], rule[8], 1000 * 2 ^ rule[2]
  local at = math.max(now, state[2])
  local micros, ticks, warmth = left(rule, state)
  micros = micros - (at - state[2])
  -- Beyond the period and a microsecond, how long a pause was makes no difference.
  local backlog = math.max(micros, -div_ceil(period, micro) - 1) * micro + ticks
  if backlog > 0 then
    return at, backlog, warmth
  end
  local cooled, rounded = most, 0
  if -backlog < period then
    cooled, rounded = mul_div(-backlog, rule[9], rule[10])
  end
  return at, 0, math.max(0, math.min(warmth, most) - cooled - rounded)
end

-- Returns the time that a cost takes at the full rate, rounded down and up.
local function price(rule, cost)
  local low, rounded = mul_div(math.min(cost, WHOLE - 1), rule[5], rule[6])
  return low, low + rounded
end

-- Returns how long later calls wait for a call that takes `high` at the full rate.
local function wait(rule, warmth, high)
  local climb = rule[11]
  if warmth >= climb then
    return high
  end
  -- From here the call goes down to there, above the threshold: the area under the line.
  local from = climb - warmth
  local to = math.max(0, from - high)
  local area, part = mul_div(from - to, rule[12] * (from + to), rule[13])
  return high + area + part
end

steps[WARM_UP_SPACED] = function(rule, state, now, cost)
  local at, backlog, warmth = place(rule, state, now)
  if cost > rule[4] or backlog > rule[3] then
    return false
  end
  local low, high = price(rule, cost)
  return true, { WARM_UP_SPACED, at, backlog + wait(rule, warmth, high), math.min(warmth + low, rule[7] + 1), rule[2] }
end
