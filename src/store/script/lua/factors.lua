-- Products beyond 2^53, and fractions.

-- Half of the digits of a factor, and all of them. What divides by a power of two is exact.
local HALF, WHOLE = 2 ^ 26, 2 ^ 52
local MOST_FACTOR = 2 ^ 51

-- x * y for factors from zero on and below 2^52: how often that holds 2^52, and what is left.
local function product(x, y)
  local x_low, y_low = x % HALF, y % HALF
  local x_high, y_high = (x - x_low) / HALF, (y - y_low) / HALF
  local middle = x_high * y_low + x_low * y_high
  local middle_low = middle % HALF
  local low = x_low * y_low + middle_low * HALF
  local rest = low % WHOLE
  return x_high * y_high + (middle - middle_low) / HALF + (low - rest) / WHOLE, rest
end

-- x * y / z, rounded down, and 1 if it was rounded, else 0; for factors from zero on and below 2^52, and z above zero
-- and up to MOST_FACTOR. From 2^52 on a quotient is not exact.
local function mul_div(x, y, z)
  -- A few too many or too few.
  local quotient = math.floor(x * y / z)
  if quotient >= WHOLE then
    return quotient, 1
  end
  local high, low = product(x, y)
  local taken_high, taken_low = product(quotient, z)
  local rest = (high - taken_high) * WHOLE + (low - taken_low)
  while rest < 0 do
    quotient, rest = quotient - 1, rest + z
  end
  while rest >= z do
    quotient, rest = quotient + 1, rest - z
  end
  return quotient, rest > 0 and 1 or 0
end

-- Returns true if a / b is at most c / d, for a and c from zero on, and b and d above zero: by Euclid's algorithm.
local function at_most(a, b, c, d)
  while true do
    local left, right = div_floor(a, b), div_floor(c, d)
    if left ~= right then
      return left < right
    end
    a, c = a - left * b, c - right * d
    if a == 0 or c == 0 then
      return a == 0
    end
    a, b, c, d = d, c, b, a
  end
end
