-- rule: kind, period, offset of the calendar's windows or -1 for those of first calls, limit
-- state: kind, from when on it counts, end of the window, count
-- A later end does not fit.
local LAST = LIMIT - 1

shapes[KIND] = function(state)
  local start, stop = state[2], state[3]
  return #state == 4 and is_natural(start) and is_natural(stop) and start <= stop and is_natural(state[4])
end

ends[KIND] = function(_, state)
  return state[4] == 0 and state[2] or state[3]
end

steps[KIND] = function(rule, state, now, cost)
  local period, offset, limit = rule[2], rule[3], rule[4]
  -- include fixed_window/count
  local anchor = offset < 0 and first or offset
  -- include fixed_window/holding
  if count > 0 then
    start = math.max(start, state[2])
  end
  if cost <= limit - count then
    return true, { KIND, start, stop, count + cost }
  end
  -- A refusal, too, carries over the count of another rule.
  if cost <= limit and (start ~= state[2] or stop ~= state[3]) then
    return false, { KIND, start, stop, count }
  end
  return false
end
