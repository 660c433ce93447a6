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
    local place = log.seen[units] or last
    if place ~= (log.seen[seen[n + 1]] or last) or not seen[n + 1] then
      entries[#entries + 1], entries[#entries + 2] = slot(log, place), units - before
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
    -- Most slots are empty, as each other one has a unit: their calls were given back. Or the sums become too large.
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
