-- rule: kind, gain a microsecond, price of a unit, capacity, longest backlog with which anything passes
-- state: kind, written at, backlog, gain, whether the last write was the only call at its instant (1 or 0), and the
-- places that were given back, which matter to settlements alone

-- The backlog as it was written, in units of this rule, rounded up.
local function written(rule, state)
  return -rescaled(-state[3], state[4], rule[2])
end

shapes[KIND] = function(state)
  local sole = state[5]
  if not (is_natural(state[2]) and has_level(state, 3) and state[3] >= 0 and (sole == 0 or sole == 1)) then
    return false
  end
  -- Of a long list, all are known to be whole numbers.
  local last, last_nanos, are_whole = 0, 0, #state > 15
  for n = 6, #state, 4 do
    local at, nanos, span, gain = state[n], state[n + 1], state[n + 2], state[n + 3]
    if not (are_whole or is_natural(at) and is_natural(nanos) and is_natural(span) and is_natural(gain)) then
      return false
    elseif not gain or at < last or at == last and nanos < last_nanos or nanos < 0 or nanos >= 1000 or span < 0
      or gain <= 0 or gain > MOST_GAIN then
      return false
    end
    last, last_nanos = at, nanos
  end
  return true
end

ends[KIND] = function(rule, state)
  return state[2] + div_ceil(written(rule, state), rule[2])
end

steps[KIND] = function(rule, state, now, cost)
  local gain, price, capacity, longest = rule[2], rule[3], rule[4], rule[5]
  local at, backlog, sole = now, 0, 1
  if state then
    at = math.max(now, state[2])
    backlog = math.max(0, written(rule, state) - (at - state[2]) * gain)
    sole = at > state[2] and 1 or 0
  end
  if cost > capacity or backlog > math.min(price * (capacity - cost), longest) then
    return false
  end
  local new = { KIND, at, backlog + cost * price, gain, sole }
  -- Those of a queue that is idle have passed.
  if backlog > 0 then
    for n = 6, #state do
      new[n] = state[n]
    end
  end
  return true, new
end
