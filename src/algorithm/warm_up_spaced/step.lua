-- Time is counted in ticks, of which a nanosecond has 2 ^ bits.
--
-- rule: kind, bits, longest wait, capacity, price of a permit and by what that is divided, greatest warmth, period,
-- what a pause cools and by what that is divided, climb, rise of the line, and by what that is divided
-- state: kind, written at, backlog and warmth, bits
local FINEST = 32

shapes[KIND] = function(state)
  local bits = state[5]
  return #state == 5 and is_natural(state[2]) and is_natural(state[3]) and is_natural(state[4])
    and is_natural(bits) and bits <= FINEST
end

-- Returns what is left of a state: whole microseconds of its backlog and ticks beyond them, rounded up, and its warmth,
-- rounded down; in ticks of this rule.
local function left(rule, state)
  local micro, scale = 1000 * 2 ^ state[5], 2 ^ (rule[2] - state[5])
  local micros = div_floor(state[3], micro)
  local ticks = math.ceil((state[3] - micros * micro) * scale)
  -- A tick more than the greatest tells that it was cut.
  return micros, ticks, math.min(math.floor(state[4] * scale), rule[7] + 1)
end

ends[KIND] = function(rule, state)
  local micros, ticks, warmth = left(rule, state)
  warmth = math.min(warmth, rule[7])
  if warmth > 0 then
    -- The least idle time whose cooling, rounded up, is all of it.
    ticks = ticks + mul_div(warmth - 1, rule[10], rule[9]) + 1
  end
  return state[2] + micros + div_ceil(ticks, 1000 * 2 ^ rule[2])
end

steps[KIND] = function(rule, state, now, cost)
  -- include warm_up_spaced/place
  if cost > rule[4] or backlog > rule[3] then
    return false
  end
  -- include warm_up_spaced/price
  -- include warm_up_spaced/wait
  return true, { KIND, at, backlog + wait, math.min(warmth + low, rule[7] + 1), rule[2] }
end
