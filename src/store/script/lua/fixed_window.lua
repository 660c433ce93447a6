-- rule: kind, period, offset of the calendar's windows or -1 for those of first calls, limit
-- state: kind, start of the window, written at, count
local FIXED_WINDOW = 2

-- What is left at `at` of its window, where one begins at `anchor`.
local function left(period, anchor, at)
  if at >= anchor then
    return period - fmod(at - anchor, period)
  end
  return anchor - at
end

local function anchor(rule, start)
  return rule[3] < 0 and start or rule[3]
end

shapes[FIXED_WINDOW] = function(state)
  local start, at = state[2], state[3]
  return #state == 4 and is_natural(start) and is_natural(at) and start <= at and is_natural(state[4])
end

ends[FIXED_WINDOW] = function(rule, state)
  if state[4] == 0 then
    return state[3]
  end
  return state[3] + left(rule[2], anchor(rule, state[2]), state[3])
end

steps[FIXED_WINDOW] = function(rule, state, now, cost)
  local period, limit = rule[2], rule[4]
  local at, start, count = now, nil, 0
  if state then
    at = math.max(now, state[3])
    if state[4] > 0 and at - state[3] < left(period, anchor(rule, state[2]), state[3]) then
      start, count = state[2], state[4]
    end
  end
  if cost > limit - count then
    return false
  end
  start = start or math.max(0, at - (period - left(period, anchor(rule, at), at)))
  return true, { FIXED_WINDOW, start, at, count + cost }
end
