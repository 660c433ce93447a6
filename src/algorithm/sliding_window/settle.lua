-- Corrects the counter of the slice that was charged, in the slices that the state counts in.
settles[KIND] = function(rule, state, now, charge)
  local more = charge.actual - charge.cost
  if more == 0 or not state and more < 0 then
    return nil
  end
  local slices, length, at = rule[2], rule[3], now
  if state then
    slices, length, at = state[2], state[3], math.max(now, state[4])
  end
  local slice = div_floor(at, length)
  local age = slice - div_floor(charge.at, length)
  if age < 0 or age > slices then
    return nil
  end
  local counting = counters({ KIND, slices, length }, state, slice)
  counting[age + 1] = math.min(math.max(0, counting[age + 1] + more), LIMIT - 1)
  return { KIND, slices, length, at, unpack(counting) }
end
