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
