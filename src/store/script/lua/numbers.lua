-- Whole numbers up to 2^53, which the numbers of Lua 5.1 hold exactly. A quotient is rounded before it is cut, so
-- what divides is taken off first.

local fmod = math.fmod

-- a / b, rounded down; b is above zero.
local function div_floor(a, b)
  local rest = fmod(a, b)
  if rest < 0 then
    rest = rest + b
  end
  return (a - rest) / b
end

-- a / b, rounded up; b is above zero.
local function div_ceil(a, b)
  return -div_floor(-a, b)
end
