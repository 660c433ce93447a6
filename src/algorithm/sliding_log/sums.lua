-- How slots are changed.

local function lowest_bit(n)
  local bit = 1
  while n % (2 * bit) == 0 do
    bit = 2 * bit
  end
  return bit
end

-- Returns the units of the first `n` slots.
local function units_to(log, n)
  local units = 0
  while n > 0 do
    local _, sum = slot(log, n)
    units, n = units + sum, n - lowest_bit(n)
  end
  return units
end

-- Adds units to a slot of `last`.
local function add(log, n, units, last)
  while n <= last do
    local at, sum = slot(log, n)
    log.changed[n] = { at, sum + units }
    n = n + lowest_bit(n)
  end
end

-- Adds a slot behind `last` of them, which have so many units.
local function append(log, last, units, at, more)
  local n = last + 1
  log.changed[n] = { at, units + more - units_to(log, n - lowest_bit(n)) }
end
