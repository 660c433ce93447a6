-- The time that a `cost` takes at the full rate, rounded down and up.
local low, rounded = mul_div(math.min(cost, WHOLE - 1), rule[5], rule[6])
local high = low + rounded
