-- Corrects the bucket that paid.
settles[KIND] = function(rule, state, now, charge)
  local n, own = 2 + 3 * charge.class, 2 + 5 * charge.class
  if not rule[own] then
    return nil
  end
  -- include cascade/known
  local paid, level, from
  if state then
    paid, level, from = new[n], new[n + 1], new[n + 2]
  end
  local left_at, left = corrected(rule, own, paid, level, from, at, charge, least_end(rule, own, charge))
  if not left_at then
    return nil
  end
  new[n], new[n + 1], new[n + 2] = left_at, left, rule[own]
  return new
end
