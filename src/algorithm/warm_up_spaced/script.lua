-- Sections, which programs are assembled from: `Lua` in `registry.rs` names their duties.

--- section: step
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
  -- include warm_up_spaced/departure
  if cost > rule[4] or backlog > rule[3] then
    return false
  end
  -- include warm_up_spaced/price
  -- include warm_up_spaced/wait
  return true, { KIND, at, backlog + wait, math.min(warmth + low, rule[7] + 1), rule[2] }
end

--- section: departure
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

--- section: price
-- The time that a `cost` takes at the full rate, rounded down and up.
local low, rounded = mul_div(math.min(cost, WHOLE - 1), rule[5], rule[6])
local high = low + rounded

--- section: wait
-- The time that later calls wait for a call at this `warmth` that takes `high` at the full rate.
local wait = high
if warmth < rule[11] then
  -- From here the call goes down to there, above the threshold: the area under the line.
  local from = rule[11] - warmth
  local to = math.max(0, from - wait)
  local area, part = mul_div(from - to, rule[12] * (from + to), rule[13])
  wait = wait + area + part
end

--- section: settle
local function price_of(rule, cost)
  -- include warm_up_spaced/price
  return low, high
end

local function wait_for(rule, warmth, high)
  -- include warm_up_spaced/wait
  return wait
end

-- Returns the backlog and the warmth behind the call of a charge as if it had cost `actual`, which is less. Nil if another call got
-- a delay since.
local function behind(rule, state, now, charge)
  local per_nano, most = 2 ^ rule[2], rule[7]
  local low, high = price_of(rule, charge.cost)
  local micros, ticks, warmth = left(rule, state)
  local backlog = micros * 1000 * per_nano + ticks
  -- Each call moves the next departure by a nanosecond or more, unless the rule is too fast.
  local ends = div_floor(backlog, per_nano)
  local is_last = state[2] + div_floor(ends, 1000) == charge.ends and ends % 1000 == charge.ends_nanos
  -- Or colder than it was, where the warmth was cut.
  local before = warmth - low
  local is_too_fast = rule[5] < rule[6] * per_nano
  if not charge.departs or before < 0 or is_too_fast or not is_last then
    return nil
  end
  -- If the key was idle since, its departure lies before the last write.
  backlog = backlog - wait_for(rule, before, high)
  local nanos = math.ceil(backlog / per_nano)
  local departs = state[2] + div_floor(nanos, 1000)
  -- A colder key makes the call longer than it was.
  if backlog < 0 or departs ~= charge.departs or nanos % 1000 ~= charge.departs_nanos then
    return nil
  end
  -- A call that has departed keeps its distance to the next one.
  local at, actual = math.max(now, state[2]), charge.actual
  if departs < at or departs == at and charge.departs_nanos == 0 then
    actual = math.max(actual, 1)
  end
  if actual == charge.cost then
    return nil
  elseif actual == 0 then
    return backlog, before
  end
  low, high = price_of(rule, actual)
  return backlog + wait_for(rule, before, high), math.min(before + low, most + 1)
end

settles[KIND] = function(rule, state, now, charge)
  if charge.actual > charge.cost then
    local _, high = price_of(rule, charge.actual - charge.cost)
    -- include warm_up_spaced/departure
    return { KIND, at, math.min(backlog + high, LIMIT - 1), warmth, rule[2] }
  elseif charge.actual < charge.cost and state then
    local backlog, warmth = behind(rule, state, now, charge)
    return backlog and { KIND, state[2], backlog, warmth, rule[2] }
  end
end
