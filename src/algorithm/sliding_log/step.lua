-- rule: kind, period, limit
-- state: kind, and for each instant at which units passed, the oldest first, that instant and the units

shapes[KIND] = function(state)
  local last = 0
  for n = 2, #state, 2 do
    local at, units = state[n], state[n + 1]
    if not (is_natural(at) and at >= last and is_natural(units) and units > 0) then
      return false
    end
    last = at
  end
  return #state >= 3
end

ends[KIND] = function(rule, state)
  return state[#state - 1] + rule[2]
end

steps[KIND] = function(rule, state, now, cost)
  local period, limit = rule[2], rule[3]
  -- include sliding_log/counted
  if cost > limit - units then
    return false
  end
  local log, last = { KIND }, 1
  for n = first, state and #state or 0 do
    last = last + 1
    log[last] = state[n]
  end
  if last > 1 and log[last - 1] == at then
    log[last] = log[last] + cost
  else
    log[last + 1], log[last + 2] = at, cost
  end
  return true, log
end
