local function price_of(rule, cost)
  -- include warm_up_spaced/price
  return low, high
end

local function wait_for(rule, warmth, high)
  -- include warm_up_spaced/wait
  return wait
end

-- Returns the backlog and the warmth behind the call of a charge as if it had cost `actual`, which is less. Nil unless no other call was
-- told a delay since.
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
    -- include warm_up_spaced/place
    return { KIND, at, math.min(backlog + high, LIMIT - 1), warmth, rule[2] }
  elseif charge.actual < charge.cost and state then
    local backlog, warmth = behind(rule, state, now, charge)
    return backlog and { KIND, state[2], backlog, warmth, rule[2] }
  end
end
