remainders[KIND] = function(rule, state, now)
  -- include fixed_window/count
  return math.max(0, rule[4] - count)
end
