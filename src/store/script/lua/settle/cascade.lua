-- Corrects the bucket that paid.
settles[CASCADE] = function(rule, state, now, charge)
  local n, own = 2 + 3 * charge.class, 2 + 5 * charge.class
  if not rule[own] then
    return nil
  end
  state = remembered(rule, state, now)
  local new, at, paid, level, from
  if state then
    new, at = first(rule, state)
    at, paid, level, from = math.max(now, at), new[n], new[n + 1], new[n + 2]
  else
    new, at = fresh(rule, now), now
  end
  local left_at, left = corrected(rule, own, paid, level, from, at, charge, least_end(rule, own, charge))
  if not left_at then
    return nil
  end
  new[n], new[n + 1], new[n + 2] = left_at, left, rule[own]
  return new
end
