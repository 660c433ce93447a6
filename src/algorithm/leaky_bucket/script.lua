-- Sections, which programs are assembled from: `Lua` in `registry.rs` names their duties.

--- section: step
-- rule: kind, gain a microsecond, price of a unit, capacity, longest backlog with which anything passes
-- state: kind, written at, backlog, gain, whether the last write was the only call at its instant (1 or 0), and the
-- slots that were refunded, which matter to settlements alone

-- The backlog as it was written, in units of this rule, rounded up.
local function written(rule, state)
  return -rescaled(-state[3], state[4], rule[2])
end

shapes[KIND] = function(state)
  local sole = state[5]
  if not (is_natural(state[2]) and has_level(state, 3) and state[3] >= 0 and (sole == 0 or sole == 1)) then
    return false
  end
  -- Of a long list, all are known to be whole numbers.
  local last, last_nanos, are_whole = 0, 0, #state > 15
  for n = 6, #state, 4 do
    local at, nanos, span, gain = state[n], state[n + 1], state[n + 2], state[n + 3]
    if not (are_whole or is_natural(at) and is_natural(nanos) and is_natural(span) and is_natural(gain)) then
      return false
    elseif not gain or at < last or at == last and nanos < last_nanos or nanos < 0 or nanos >= 1000 or span < 0
      or gain <= 0 or gain > MOST_GAIN then
      return false
    end
    last, last_nanos = at, nanos
  end
  return true
end

ends[KIND] = function(rule, state)
  return state[2] + div_ceil(written(rule, state), rule[2])
end

steps[KIND] = function(rule, state, now, cost)
  local gain, price, capacity, longest = rule[2], rule[3], rule[4], rule[5]
  local at, backlog, sole = now, 0, 1
  if state then
    at = math.max(now, state[2])
    backlog = math.max(0, written(rule, state) - (at - state[2]) * gain)
    sole = at > state[2] and 1 or 0
  end
  if cost > capacity or backlog > math.min(price * (capacity - cost), longest) then
    return false
  end
  local new = { KIND, at, backlog + cost * price, gain, sole }
  -- Those of a queue that is idle have passed.
  if backlog > 0 then
    for n = 6, #state do
      new[n] = state[n]
    end
  end
  return true, new
end

--- section: settle
-- Returns the slots of a state that were refunded, each { departure, nanoseconds beyond it, span in units of this rule, whether that is exact }.
local function refunded_slots(rule, state)
  local slots = {}
  for n = 6, #state, 4 do
    local gain = state[n + 3]
    slots[#slots + 1] = { state[n], state[n + 1], -rescaled(-state[n + 2], gain, rule[2]), gain == rule[2] }
  end
  return slots
end

-- Returns the departure of a slot that begins `units` after the last write at `at`: microseconds, and nanoseconds beyond them, rounded up.
local function departure(rule, at, units)
  local gain = rule[2]
  local micros = div_floor(units, gain)
  local nanos = div_ceil((units - micros * gain) * 1000, gain)
  if nanos == 1000 then
    return at + micros + 1, 0
  end
  return at + micros, nanos
end

-- Returns for how many nanoseconds a slot lasts after a departure. Departures are rounded up, so 0 and 1 mean that it ends there.
local function lasts_after(rule, slot, departs, nanos)
  if not (slot and slot[4]) then
    return -1
  end
  local at, beyond = departure(rule, slot[1], slot[3])
  return (at - departs) * 1000 + beyond + slot[2] - nanos
end

-- Unites slot `n` and the next one if that begins where it ends. Slots that do not touch must be two nanoseconds apart.
local function unite(rule, slots, n)
  local first, second = slots[n], slots[n + 1]
  if not second or rule[3] * 1000 < 2 * rule[2] then
    return
  end
  local after = lasts_after(rule, first, second[1], second[2])
  if second[4] and (after == 0 or after == 1) and first[3] + second[3] < LIMIT then
    first[3] = first[3] + second[3]
    table.remove(slots, n + 1)
  end
end

-- Remembers a slot before the last one, unless it has departed at `now`. Of those that do not touch, at most 16 are remembered, so that no number
-- of clients that hang up makes a state large, or slow to correct; and no more than fit, even if charges are forged. Returns whether it is remembered
-- now, and whether it is one too many.
local function remember(rule, slots, departs, nanos, span, now)
  if departs < now or departs == now and nanos == 0 then
    return false
  end
  local n = 1
  while slots[n] and (slots[n][1] < departs or slots[n][1] == departs and slots[n][2] < nanos) do
    n = n + 1
  end
  -- One that lies within another was remembered before.
  if slots[n] and slots[n][1] == departs and slots[n][2] == nanos or lasts_after(rule, slots[n - 1], departs, nanos) > 1 then
    return false
  end
  -- There are more after the queue became shorter.
  local most = math.max(math.min(16, rule[4]), #slots)
  table.insert(slots, n, { departs, nanos, math.min(span, LIMIT - 1), true })
  unite(rule, slots, n)
  unite(rule, slots, n - 1)
  if #slots > most then
    table.remove(slots, n)
    return false, true
  end
  return true
end

-- Refunds a slot to the calls that have no delay yet, or takes more.
settles[KIND] = function(rule, state, now, charge)
  local gain, price = rule[2], rule[3]
  local at = state and math.max(now, state[2]) or now
  local backlog = state and math.max(0, written(rule, state) - (at - state[2]) * gain) or 0
  if charge.actual > charge.cost then
    -- Forced units are never refunded, and so nothing before them is.
    return { KIND, at, math.min(backlog + (charge.actual - charge.cost) * price, LIMIT - 1), gain, 0 }
  elseif charge.actual == charge.cost or not state then
    return nil
  elseif backlog == 0 then
    -- Time has restored all.
    return { unpack(state, 1, 5) }
  end
  local slots, left, sole, changed = refunded_slots(rule, state), written(rule, state), state[5], false
  -- Slots that have passed make no difference any more.
  while slots[1] and slots[1][3] <= (at - slots[1][1]) * gain - div_ceil(slots[1][2] * gain, 1000) do
    table.remove(slots, 1)
    changed = true
  end
  -- The begin of the charge's slot if it is the last one, counted from the last write, and its departure.
  local span = charge.cost * price
  local slot = left - span
  local departs, nanos = departure(rule, state[2], slot)
  local is_sole = sole == 1 and charge.at == state[2]
  -- Otherwise several slots depart within a nanosecond.
  local are_separate = price * 1000 >= gain
  local due, due_nanos = charge.departs, charge.departs_nanos
  local is_last, forgets
  if due then
    is_last = due == departs and due_nanos == nanos and (are_separate or is_sole)
  else
    is_last = is_sole
  end
  if is_last then
    left, sole, changed = slot + charge.actual * price, 0, true
    -- A slot that is refunded as a whole frees those before it that were refunded earlier.
    while charge.actual == 0 and #slots > 0 do
      local before = slots[#slots]
      local begin = left - before[3]
      departs, nanos = departure(rule, state[2], begin)
      if departs ~= before[1] or nanos ~= before[2] then
        break
      end
      left = begin
      table.remove(slots)
    end
  elseif due and are_separate and charge.actual == 0 and (due < departs or due == departs and due_nanos < nanos) then
    local is_kept
    is_kept, forgets = remember(rule, slots, due, due_nanos, span, at)
    changed = is_kept or changed
  end
  if not changed then
    return nil, forgets
  end
  local new = { KIND, state[2], math.max(0, left), gain, sole }
  for _, freed in ipairs(slots) do
    local n = #new
    new[n + 1], new[n + 2], new[n + 3], new[n + 4] = freed[1], freed[2], freed[3], gain
  end
  return new, forgets
end
