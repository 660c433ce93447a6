-- Sections, which programs are assembled from: `Lua` in `registry.rs` names their duties.

--- section: step
-- rule: kind, period, limit
-- state: kind; slots that are over or empty before the first one that counts, and their units; all slots, and their units; the newest
-- instant; and until calls are decided, those of the units that have no slot yet, all of that instant
-- include sliding_log/slots

-- Returns the slots of a state that are over, as they are not later than `since` or were over before, and their units.
local function over_at(log, state, since)
  if log.since ~= since or log.least ~= state[2] then
    local over, gone, last = state[2], state[3], state[4]
    -- Often nothing is over since the last write.
    if over < last and slot(log, over + 1) <= since then
      over, gone = find(log, last, since, 0)
      see(log, last, gone)
      over = find(log, last, -1, gone + 1)
    end
    log.since, log.least, log.over, log.gone, log.seen[gone + 1] = since, state[2], over, gone, over + 1
  end
  return log.over, log.gone
end

-- The string may have been evicted without the state: then its newest slot is not there, or another one.
shapes[KIND] = function(state, log)
  if log.is_checked then
    return true
  end
  for n = 2, 6 do
    if not is_natural(state[n]) or #state > 6 then
      return false
    end
  end
  local over, gone, last, units, newest = unpack(state, 2)
  log.is_there = over < last and last <= MOST and gone < units and slot(log, last) == newest
  log.is_checked = log.is_there
  return log.is_there
end

ends[KIND] = function(rule, state)
  return state[6] + rule[2]
end

steps[KIND] = function(rule, state, now, cost, log)
  local period, limit = rule[2], rule[3]
  -- include sliding_log/counted
  if cost > limit - units then
    -- When this cost fits, and when anything does.
    if cost <= limit then
      see(log, state[4], state[5] - limit + cost)
    end
    if units >= limit then
      see(log, state[4], state[5] - limit + 1)
    end
    return false
  elseif state then
    return true, { KIND, over, gone, state[4], state[5] + cost, at, (state[7] or 0) + cost }
  end
  log.is_checked = true
  return true, { KIND, 0, 0, 0, cost, at, cost }
end

-- Returns the log that the other side decides by, `{ kind, instant, units, ... }`: each slot that was seen has the units up to those that it was
-- looked up for. No other units are looked up there.
reports[KIND] = function(state, log)
  local last, seen, entries, before = state[4], {}, { KIND }, state[3]
  for units in pairs(log.seen) do
    if units > before and units < state[5] then
      seen[#seen + 1] = units
    end
  end
  table.sort(seen)
  seen[#seen + 1] = state[5]
  for n, units in ipairs(seen) do
    local found = log.seen[units] or last
    if found ~= (log.seen[seen[n + 1]] or last) or not seen[n + 1] then
      entries[#entries + 1], entries[#entries + 2] = slot(log, found), units - before
      before = units
    end
  end
  return entries
end

-- Returns the state as it is written, and the commands that write its slots.
writes[KIND] = function(rule, state, now, log)
  -- include sliding_log/sums
  -- include sliding_log/shorter
  local over, gone, last, units, newest, added = unpack(state, 2)
  if added and last > 0 and slot(log, last) == newest then
    add(log, last, added, last)
  elseif added then
    append(log, last, units - added, newest, added)
    last = last + 1
  end
  local name, commands, is_whole = log.name, {}, not log.is_there
  if last - over > 2 * (units - gone) + 64 or units >= LIMIT - rule[3] then
    -- Most slots are empty, as each other one has a unit: their calls were refunded. Or the sums become too large.
    is_whole, over, gone, last, units = true, 0, 0, packed(log, over, last)
  elseif over >= 64 and 2 * over >= last then
    local by, lost, command = shifted(log, over, last)
    over, gone, last, units, commands[1] = over - by, gone - lost, last - by, units - lost, command
  end
  if is_whole then
    local bytes = {}
    for n = 1, last do
      bytes[n] = struct.pack('>I8I8', slot(log, n))
    end
    commands[1] = { 'SET', name, table.concat(bytes) }
  else
    for n, changed in pairs(log.changed) do
      if n > 0 and n <= last then
        commands[#commands + 1] = { 'SETRANGE', name, (n - 1) * SLOT, struct.pack('>I8I8', changed[1], changed[2]) }
      end
    end
  end
  return { KIND, over, gone, last, units, newest }, commands
end

--- section: counted
-- Finds the `units` that count as of `at`, which is never before the newest slot; and the slots that are over, with the units of these.
local at, units, over, gone = now, 0, 0, 0
if state then
  at = math.max(now, state[6])
  over, gone = over_at(log, state, at - period)
  units = state[5] - gone
end

--- section: shorter
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

--- section: slots
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

--- section: sums
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

--- section: settle
-- Takes units back from those of the instant that was charged, or adds to them.
settles[KIND] = function(rule, state, now, charge, log)
  -- include sliding_log/sums
  local period, limit = rule[2], rule[3]
  local more = charge.actual - charge.cost
  -- include sliding_log/counted
  if more == 0 or at - charge.at >= period then
    return nil
  end
  -- What was looked up is so no more.
  log.since, log.seen = nil, {}
  local last, total, newest = 0, 0, charge.at
  if state then
    last, total, newest = state[4], state[5], state[6]
  end
  -- The slot of that instant, or the first one after it.
  local n, earlier = find(log, last, charge.at - 1, 0)
  if n < over then
    n, earlier = over, gone
  end
  n = n + 1
  local here = 0
  if n <= last and slot(log, n) == charge.at then
    here = units_to(log, n) - earlier
  end
  if more < 0 then
    more = -math.min(here, -more)
  else
    more = math.min(more, LIMIT - 1 - total)
    if here == 0 then
      -- Nothing is left of it: the next one with units takes them.
      n = find(log, last, -1, earlier + 1) + 1
    end
    if n > last and (last == 0 or units < limit) then
      append(log, last, total, charge.at, more)
      log.is_checked = true
      return { KIND, over, gone, last + 1, total + more, charge.at }
    elseif n > last then
      n, newest = last, charge.at
      local _, sum = slot(log, n)
      log.changed[n] = { newest, sum }
    end
  end
  if more ~= 0 then
    add(log, n, more, last)
    total = total + more
  end
  if total == gone then
    log.is_empty, log.is_there = log.is_there, false
    return state and false
  end
  if here + more == 0 and (n == over + 1 or n == last) then
    -- The first and the last slot have units, so now others are these.
    over = find(log, last, -1, gone + 1)
    last = math.min(find(log, last, -1, total) + 1, last)
    newest = slot(log, last)
  end
  return { KIND, over, gone, last, total, newest }
end

--- section: remaining
remainders[KIND] = function(rule, state, now, log)
  local period = rule[2]
  -- include sliding_log/counted
  return math.max(0, rule[3] - units)
end
