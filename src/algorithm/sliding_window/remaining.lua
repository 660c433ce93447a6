remainders[KIND] = function(rule, state, now)
  local slices, length, limit = rule[2], rule[3], rule[4]
  -- include sliding_window/estimate
  return math.max(0, limit - estimate)
end
