-- Corrects what passed in the second of the charge, as long as that is the key's last one.
settles[KIND] = function(rule, state, _, charge)
  if not state or div_floor(charge.at, SECOND) ~= state[2] then
    return nil
  end
  local passed = math.min(math.max(0, state[3] - charge.cost) + charge.actual, LIMIT - 1)
  if passed ~= state[3] then
    return { KIND, state[2], passed, known(rule, state), rule[3] }
  end
end
