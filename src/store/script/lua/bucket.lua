-- Buckets that are filled at a constant rate.
--
-- A rule has of each bucket, from index `n` on: gain a microsecond, price of a token, burst, initial fill, for how
-- long that is kept, and the tokens that it keeps free. A state has its level, and the gain `from` a microsecond in whose units that is.

-- `level` of `from` a microsecond, in units of `to` a microsecond, rounded down; cut to what is counted exactly, and can be written.
local function rescaled(level, from, to)
  if from == to then
    return level
  end
  local whole = div_floor(level, from)
  level = whole * to + div_floor((level - whole * from) * to, from)
  return math.max(1 - LIMIT, math.min(level, LIMIT))
end

-- Returns the level of a bucket `elapsed` microseconds after it was left at `level`.
local function filled(rule, n, level, from, elapsed)
  local gain, price = rule[n], rule[n + 1]
  local full = rule[n + 2] * price
  level = rescaled(level, from, gain)
  if level > full then
    return math.min(level, math.max(full, rule[n + 3] * price))
  end
  if elapsed >= div_ceil(full - level, gain) then
    return full
  end
  return level + elapsed * gain
end

-- Returns true if a new bucket is like one that has been left alone.
local function starts_full(rule, n)
  return rule[n + 3] == rule[n + 2]
end

-- When a bucket that was left at `level` cannot be distinguished from a new one.
local function rests_at(rule, n, at, level, from)
  local lacking = rule[n + 2] * rule[n + 1] - rescaled(level, from, rule[n])
  local full = at + math.max(0, div_ceil(lacking, rule[n]))
  return starts_full(rule, n) and full or full + rule[n + 4]
end

-- Returns the level after `cost` is paid; nil if fewer tokens would be left than are kept free.
local function paid(rule, n, level, cost)
  local kept = rule[n + 5]
  if cost <= rule[n + 2] - kept and level >= (cost + kept) * rule[n + 1] then
    return level - cost * rule[n + 1]
  end
end
