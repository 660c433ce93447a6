-- The slots of a log lie in a string of their own, the oldest first, so that no call reads all of it. A slot has an instant and a
-- sum of units: its own, and those of as many slots before it as the lowest bit of its number says, less one. So what is searched or summed
-- up takes one slot for each bit of their number (a Fenwick tree).
--
-- A `log` is what is known of a string: its `name`; blocks of it as they were read; the slots that are `changed`; the slots that the other
-- side must have `seen`, by the units that they were looked up for; whether the string `is_there`, as the state says; and whether the state `is_checked`.
local SLOT, BLOCK, MOST = 16, 16, 2 ^ 25

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
