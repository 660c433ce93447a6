remainders[KIND] = function(rule, state, now, log)
  local period = rule[2]
  -- include sliding_log/counted
  return math.max(0, rule[3] - units)
end
