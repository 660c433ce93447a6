-- rule: kind, and the bucket
-- state: kind, written at, level, gain
local TOKEN_BUCKET = 1

shapes[TOKEN_BUCKET] = function(state)
  return #state == 4 and is_natural(state[2]) and has_level(state, 3)
end

ends[TOKEN_BUCKET] = function(rule, state)
  return rests_at(rule, 2, state[2], state[3], state[4])
end

steps[TOKEN_BUCKET] = function(rule, state, now, cost)
  local gain, price, burst, initial = rule[2], rule[3], rule[4], rule[5]
  if state and not starts_full(rule, 2) and now >= ends[TOKEN_BUCKET](rule, state) then
    state = nil
  end
  local at, level = now, initial * price
  if state then
    at = math.max(now, state[2])
    level = filled(rule, 2, state[3], state[4], at - state[2])
  end
  local rest = paid(rule, 2, level, cost)
  if rest then
    return true, { TOKEN_BUCKET, at, rest, gain }
  end
  -- The first sight of a key that does not start at rest is remembered: from here on it fills.
  if cost <= burst and not state and not starts_full(rule, 2) then
    return false, { TOKEN_BUCKET, at, level, gain }
  end
  return false
end
