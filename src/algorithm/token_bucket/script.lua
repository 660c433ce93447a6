-- Sections, which programs are assembled from: `Lua` in `registry.rs` names their duties.

--- section: step
-- rule: kind, and the bucket
-- state: kind, written at, level, gain; and if something was refunded to the key, how many microseconds, and when the last
-- charge that was moved by it has passed

shapes[KIND] = is_bucket

local function at_rest_from(rule, state)
  return rests_at(rule, 2, state[2], state[3], state[4])
end

ends[KIND] = function(rule, state)
  return math.max(at_rest_from(rule, state), state[6] or 0)
end

steps[KIND] = function(rule, state, now, cost)
  local gain, price, burst, initial, kept = rule[2], rule[3], rule[4], rule[5], rule[7]
  local refunded, last = state and state[5], state and state[6]
  -- include token_bucket/level
  -- Once all charges have passed, nobody asks what was refunded.
  if last and level >= burst * price and last <= at then
    refunded, last = nil, nil
  end
  local rest = paid(rule, 2, level, cost)
  if rest then
    return true, { KIND, at, rest, gain, refunded, last }
  end
  -- The first sight of a key that does not start at rest is remembered: from here on it fills.
  if cost <= burst - kept and not state and not starts_full(rule, 2) then
    return false, { KIND, at, level, gain, refunded, last }
  end
  return false
end

--- section: level
-- Finds the `level` of the bucket as of `at`, which is never before the last write; of a new bucket without a `state`, which is nil also where
-- that is forgotten.
if state and not starts_full(rule, 2) and now >= at_rest_from(rule, state) then
  state = nil
end
local at, level = now, initial * price
if state then
  at = math.max(now, state[2])
  level = filled(rule, 2, state[3], state[4], at - state[2])
end

--- section: settle
-- Microseconds modulo which the sum that was refunded is counted, so that it stays exact.
local SUM = 2 ^ 50

-- Returns whether no charge lies behind this one on the time axis of a bucket.
local function is_last(rule, state, charge)
  local gain, price = rule[2], rule[3]
  if not charge.ends or ((state[5] or 0) - charge.refunded) % SUM ~= 0 then
    return false
  end
  local lacking = rule[4] * price - rescaled(state[3], state[4], gain)
  -- Each charge behind it takes the time of a unit at least; levels are rounded by less than a microsecond.
  local before = lacking - (charge.ends - state[2]) * gain - math.min(price, gain)
  return before < div_ceil(charge.ends_nanos * gain, 1000)
end

-- Returns where a charge ends on the time axis, rounded down. All that was refunded since may have moved it.
local function end_of(rule, refunded, charge)
  local ends, nanos = least_end(rule, 2, charge)
  if charge.ends then
    local moved = charge.ends - (refunded - charge.refunded) % SUM
    if moved > ends or moved == ends and charge.ends_nanos > nanos then
      return moved, charge.ends_nanos
    end
  end
  return ends, nanos
end

settles[KIND] = function(rule, state, now, charge)
  local refunded, last, at, level, from, ends, nanos
  if state then
    refunded, last = state[5], state[6]
    if starts_full(rule, 2) or now < at_rest_from(rule, state) then
      at, level, from = state[2], state[3], state[4]
    end
  end
  local moves_others = at and not is_last(rule, state, charge)
  if moves_others and charge.if_last and charge.actual < charge.cost then
    return nil
  end
  if moves_others then
    ends, nanos = end_of(rule, refunded or 0, charge)
  end
  local left_at, left, micros = corrected(rule, 2, at, level, from, now, charge, ends, nanos)
  if not left_at then
    return nil
  end
  if moves_others and micros then
    local full_at = at + math.max(0, div_ceil(rule[4] * rule[3] - rescaled(level, from, rule[2]), rule[2]))
    refunded = ((refunded or 0) % SUM + micros) % SUM
    last = math.min(math.max(last or 0, full_at), LIMIT - 1)
  end
  return { KIND, left_at, left, rule[2], refunded, last }
end

--- section: remaining
remainders[KIND] = function(rule, state, now)
  local price, burst, initial, kept = rule[3], rule[4], rule[5], rule[7]
  -- include token_bucket/level
  return div_floor(math.max(0, math.min(level, burst * price) - kept * price), price)
end
