-- Sections, which programs are assembled from: `Lua` in `registry.rs` names their duties.

--- section: step
-- rule: kind, units at most, lease, length of a span
-- state: kind, and for each span of time in which units lie its end and these, in order

shapes[KIND] = function(state)
  local last = -1
  for n = 2, #state, 2 do
    if not (is_natural(state[n]) and is_natural(state[n + 1]) and state[n] > last) then
      return false
    end
    last = state[n]
  end
  return last >= 0
end

ends[KIND] = function(_, state)
  return state[#state - 1]
end

-- Returns the end of the span of what is charged at `at`.
local function end_of(rule, at)
  return div_ceil(at + rule[3], rule[4]) * rule[4]
end

-- Returns a state after `more` units were added to the span that ends at `stop`, or taken from it; without spans that are over or empty.
local function changed(state, now, stop, more)
  local after, is_made = { KIND }, false
  local function put(stop, units)
    if units > 0 and stop > now then
      after[#after + 1], after[#after + 2] = stop, math.min(units, LIMIT - 1)
    end
  end
  for n = 2, state and #state or 0, 2 do
    local here, units = state[n], state[n + 1]
    if here == stop then
      units, is_made = units + more, true
    elseif here > stop and not is_made then
      put(stop, more)
      is_made = true
    end
    put(here, units)
  end
  if not is_made then
    put(stop, more)
  end
  return after
end

steps[KIND] = function(rule, state, now, cost)
  local held = 0
  for n = 2, state and #state or 0, 2 do
    if state[n] > now then
      held = held + state[n + 1]
    end
  end
  if cost > rule[2] - held then
    return false
  end
  return true, changed(state, now, end_of(rule, now), cost)
end

--- section: settle
-- Takes back what the charge holds, and holds the actual units from its departure on.
settles[KIND] = function(rule, state, now, charge)
  local departs = charge.departs or charge.at
  local stop, later = end_of(rule, charge.at), end_of(rule, departs)
  local is_changed = charge.actual < charge.cost or departs > charge.at
  local after = state
  if stop > now then
    after = changed(after, now, stop, -charge.cost)
  end
  if later <= now and departs > charge.at then
    -- A clock that jumped must not lose what calls hold.
    later = end_of(rule, now)
  end
  if later > now then
    after = changed(after, now, later, charge.actual)
  end
  if after and #after == 1 then
    after = state and false
  end
  -- A charge at the first instant lies nowhere: a renewal of it was lost, and counted then.
  return after, is_changed and charge.cost > 0 and charge.at > 0 and stop <= now
end
