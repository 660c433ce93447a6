remainders[KIND] = function(rule, state, now)
  local price, burst, initial = rule[3], rule[4], rule[5]
  -- include token_bucket/level
  return div_floor(math.max(0, math.min(level, burst * price)), price)
end
