-- Grants units ahead of their use.
--
-- Each ask has a fourth number: up to how many units are granted, together at most a share of what remains. Not above the cost, it changes
-- nothing; it is above that only if each part of the rule can grant.
--
-- `remainders[kind]` returns the greatest cost that passes.

remainders[ALL] = function()
  return LIMIT
end

-- Returns the units that an ask spends in a state that has the cost.
local function granted(rule, state, cost, up_to, beside)
  if up_to <= cost then
    return cost
  end
  local least = LIMIT
  for n, part in ipairs(rule) do
    local log = beside and beside[n]
    local before = checked(part, state, n, log)
    least = math.min(least, remainders[part[1]](part, before, now, log))
  end
  return math.max(cost, math.min(up_to, div_floor(least, SHARES)))
end

