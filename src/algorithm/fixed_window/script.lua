-- Sections, which programs are assembled from: `Lua` in `registry.rs` names their duties.

--- section: step
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

--- section: count
-- Finds the `count` of the window that holds `now`, when it began, `first`, and the instant `at`, which is never before that.
local at, first, count = now, now, 0
if state then
  at = math.max(now, state[2])
  first = at
  if state[4] > 0 and now < state[3] then
    first, count = state[2], state[4]
  end
end

--- section: holding
-- Finds `start` and `stop` of the window that holds `at`, if one begins at `anchor`.
local since = at >= anchor and fmod(at - anchor, period) or period - (anchor - at)
local start, stop = math.max(0, at - since), math.min(at - since + period, LAST)

--- section: settle
-- Corrects the count of the window that was charged, as long as it goes on or is the last one that is known.
settles[KIND] = function(rule, state, now, charge)
  local period, offset = rule[2], rule[3]
  local more = charge.actual - charge.cost
  if state and state[4] > 0 then
    -- A charge before the start may not be in the count.
    if charge.at >= state[2] and charge.at < state[3] then
      return { KIND, state[2], state[3], math.min(math.max(0, state[4] + more), LIMIT - 1) }
    elseif now < state[3] then
      return nil
    end
  end
  if more <= 0 or offset < 0 then
    return nil
  end
  local at, anchor = charge.at, offset
  -- include fixed_window/holding
  if (state and math.max(now, state[2]) or now) < stop then
    return { KIND, start, stop, more }
  end
end

--- section: remaining
remainders[KIND] = function(rule, state, now)
  -- include fixed_window/count
  return math.max(0, rule[4] - count)
end
