-- rule: kind, and the bucket
-- state: kind, written at, level, gain; and where something was given back to the key, how many microseconds, and when the
-- last charge that was moved by it has passed

shapes[KIND] = is_bucket

local function at_rest_from(rule, state)
  return rests_at(rule, 2, state[2], state[3], state[4])
end

ends[KIND] = function(rule, state)
  return math.max(at_rest_from(rule, state), state[6] or 0)
end

steps[KIND] = function(rule, state, now, cost)
  local gain, price, burst, initial = rule[2], rule[3], rule[4], rule[5]
  local given_back, last = state and state[5], state and state[6]
  -- include token_bucket/level
  -- Once all charges have passed, nobody asks what was given back.
  if last and level >= burst * price and last <= at then
    given_back, last = nil, nil
  end
  local rest = paid(rule, 2, level, cost)
  if rest then
    return true, { KIND, at, rest, gain, given_back, last }
  end
  -- The first sight of a key that does not start at rest is remembered: from here on it fills.
  if cost <= burst and not state and not starts_full(rule, 2) then
    return false, { KIND, at, level, gain, given_back, last }
  end
  return false
end
