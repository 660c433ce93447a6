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
