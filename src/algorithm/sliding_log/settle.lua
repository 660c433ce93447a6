-- Takes units back from those of the instant that was charged, or adds to them.
settles[KIND] = function(rule, state, now, charge)
  local period, limit = rule[2], rule[3]
  local at = state and math.max(now, state[#state - 1]) or now
  local more = charge.actual - charge.cost
  if more == 0 or at - charge.at >= period then
    return nil
  end
  local log = { KIND }
  -- The index of the charge's entry, or of the first one after it.
  local place = 2
  for n = 2, state and #state or 0, 2 do
    if at - state[n] < period then
      log[#log + 1], log[#log + 2] = state[n], state[n + 1]
      place = state[n] < charge.at and #log + 1 or place
    end
  end
  if log[place] == charge.at then
    log[place + 1] = math.min(math.max(0, log[place + 1] + more), LIMIT - 1)
    if log[place + 1] == 0 then
      table.remove(log, place)
      table.remove(log, place)
    end
  elseif more > 0 and (#log - 1) / 2 >= limit then
    -- A log of full length gets no further entry: the units count as the newest.
    log[#log - 1] = math.max(log[#log - 1], charge.at)
    log[#log] = math.min(log[#log] + more, LIMIT - 1)
  elseif more > 0 then
    table.insert(log, place, math.min(more, LIMIT - 1))
    table.insert(log, place, charge.at)
  end
  return #log > 1 and log
end
