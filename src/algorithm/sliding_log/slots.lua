-- The slots of a log lie in a string of their own, the oldest first, so that no call reads all of it. A slot has an instant and a
-- sum of units: its own, and those of as many slots before it as the lowest bit of its number says, less one. So what is searched or summed
-- up takes one slot for each bit of their number (a Fenwick tree).
--
-- A `log` is what is known of a string: its `name`; blocks of it as they were read; the slots that are `changed`; the slots that the other
-- side must have `seen`, by the units that they were looked up for; whether the string `is_there`, as the state says; and whether the state `is_checked`.
local SLOT, BLOCK, MOST = 16, 16, 2 ^ 25

local function lowest_bit(n)
  local bit = 1
  while n % (2 * bit) == 0 do
    bit = 2 * bit
  end
  return bit
end

-- Returns the instant and the sum of a slot; nil if the string ends before it.
local function slot(log, n)
  local changed = log.changed[n]
  if changed then
    return changed[1], changed[2]
  end
  local within = (n - 1) % BLOCK
  local first = n - within
  local bytes = log[first]
  if not bytes then
    bytes = redis.pcall('GETRANGE', log.name, (first - 1) * SLOT, (first - 1 + BLOCK) * SLOT - 1)
    if type(bytes) == 'table' then
      if not string.find(bytes.err, '^WRONGTYPE') then
        error(bytes.err, 0)
      end
      bytes = ''
    end
    log[first] = bytes
  end
  if #bytes >= (within + 1) * SLOT then
    local at, sum = struct.unpack('>I8I8', bytes, within * SLOT + 1)
    return at, sum
  end
end

-- Returns how many of the `last` slots are not later than `since`, and their units; or in how many slots there are less than `below` units.
local function find(log, last, since, below)
  local n, units, bit = 0, 0, 1
  while 2 * bit <= last do
    bit = 2 * bit
  end
  while bit >= 1 do
    if n + bit <= last then
      local at, sum = slot(log, n + bit)
      if at <= since or units + sum < below then
        n, units = n + bit, units + sum
      end
    end
    bit = bit / 2
  end
  return n, units
end

-- Looks up the slot, of `last`, with which these units are reached.
local function see(log, last, units)
  -- At most the last one, also of sums that nobody has written.
  log.seen[units] = log.seen[units] or math.min(find(log, last, -1, units) + 1, math.max(last, 1))
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

-- Drops slots that are over, as many as a power of two: then what other slots sum up stays as it is, but for a few of them. Returns how many
-- are dropped, their units, and the command that moves the others.
local function shifted(log, over, last)
  local by = 1
  while 2 * by <= over do
    by = 2 * by
  end
  local bytes = redis.call('GETRANGE', log.name, by * SLOT, last * SLOT - 1)
  local changed = {}
  for n, slot in pairs(log.changed) do
    changed[n - by] = slot
  end
  for n = by, last - by, by do
    local at = slot(log, by + n)
    changed[n] = { at, units_to(log, by + n) - units_to(log, by + n - lowest_bit(n)) }
  end
  local lost = units_to(log, by)
  log.changed = changed
  return by, lost, { 'SET', log.name, bytes }
end

-- Drops slots that are over, and those without units: all slots are `changed` then. Returns how many are left, and their units.
local function packed(log, over, last)
  local ats, sums, changed, units = {}, {}, {}, 0
  for n = 1, last do
    ats[n], sums[n] = slot(log, n)
  end
  for n = last, 1, -1 do
    local above = n + lowest_bit(n)
    if above <= last then
      sums[above] = sums[above] - sums[n]
    end
  end
  for n = over + 1, last do
    if sums[n] > 0 then
      changed[#changed + 1] = { ats[n], sums[n] }
      units = units + sums[n]
    end
  end
  for n, slot in ipairs(changed) do
    local above = changed[n + lowest_bit(n)]
    if above then
      above[2] = above[2] + slot[2]
    end
  end
  log.changed = changed
  return #changed, units
end
