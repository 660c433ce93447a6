-- Takes units back from those of the instant that was charged, or adds to them.
settles[KIND] = function(rule, state, now, charge, log)
  -- include sliding_log/sums
  local period, limit = rule[2], rule[3]
  local more = charge.actual - charge.cost
  -- include sliding_log/counted
  if more == 0 or at - charge.at >= period then
    return nil
  end
  -- What was looked up is so no more.
  log.since, log.seen = nil, {}
  local last, total, newest = 0, 0, charge.at
  if state then
    last, total, newest = state[4], state[5], state[6]
  end
  -- The slot of that instant, or the first one after it.
  local n, earlier = find(log, last, charge.at - 1, 0)
  if n < over then
    n, earlier = over, gone
  end
  n = n + 1
  local here = 0
  if n <= last and slot(log, n) == charge.at then
    here = units_to(log, n) - earlier
  end
  if more < 0 then
    more = -math.min(here, -more)
  else
    more = math.min(more, LIMIT - 1 - total)
    if here == 0 then
      -- Nothing is left of it: the next one with units takes them.
      n = find(log, last, -1, earlier + 1) + 1
    end
    if n > last and (last == 0 or units < limit) then
      append(log, last, total, charge.at, more)
      log.is_checked = true
      return { KIND, over, gone, last + 1, total + more, charge.at }
    elseif n > last then
      n, newest = last, charge.at
      local _, sum = slot(log, n)
      log.changed[n] = { newest, sum }
    end
  end
  if more ~= 0 then
    add(log, n, more, last)
    total = total + more
  end
  if total == gone then
    log.is_empty, log.is_there = log.is_there, false
    return state and false
  end
  if here + more == 0 and (n == over + 1 or n == last) then
    -- The first and the last slot have units, so now others are these.
    over = find(log, last, -1, gone + 1)
    last = math.min(find(log, last, -1, total) + 1, last)
    newest = slot(log, last)
  end
  return { KIND, over, gone, last, total, newest }
end
