-- Returns whether no charge lies behind this one on the time axis of a bucket.
local function is_last(rule, state, charge)
  local gain, price = rule[2], rule[3]
  if not charge.ends or (state[5] or 0) ~= charge.given_back then
    return false
  end
  local lacking = rule[4] * price - rescaled(state[3], state[4], gain)
  -- Each charge behind it takes the time of a unit at least; levels are rounded by less than a microsecond.
  local before = lacking - (charge.ends - state[2]) * gain - math.min(price, gain)
  return before < div_ceil(charge.ends_nanos * gain, 1000)
end

-- Returns where a charge ends on the time axis, rounded down. All that was given back since may have moved it.
local function end_of(rule, given_back, charge)
  local ends, nanos = least_end(rule, 2, charge)
  if charge.ends then
    local moved = charge.ends - math.max(0, given_back - charge.given_back)
    if moved > ends or moved == ends and charge.ends_nanos > nanos then
      return moved, charge.ends_nanos
    end
  end
  return ends, nanos
end

settles[KIND] = function(rule, state, now, charge)
  local given_back, last, at, level, from, ends, nanos
  if state then
    given_back, last = state[5], state[6]
    if starts_full(rule, 2) or now < at_rest_from(rule, state) then
      at, level, from = state[2], state[3], state[4]
    end
  end
  local moves_others = at and not is_last(rule, state, charge)
  if moves_others and charge.if_last and charge.actual < charge.cost then
    return nil
  end
  if moves_others then
    ends, nanos = end_of(rule, given_back or 0, charge)
  end
  local left_at, left, micros = corrected(rule, 2, at, level, from, now, charge, ends, nanos)
  if not left_at then
    return nil
  end
  if moves_others and micros then
    local full_at = at + math.max(0, div_ceil(rule[4] * rule[3] - rescaled(level, from, rule[2]), rule[2]))
    given_back = math.min((given_back or 0) + micros, LIMIT - 1)
    last = math.min(math.max(last or 0, full_at), LIMIT - 1)
  end
  return { KIND, left_at, left, rule[2], given_back, last }
end
