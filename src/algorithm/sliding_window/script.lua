-- Sections, which programs are assembled from: `Lua` in `registry.rs` names their duties.

--- section: step
-- rule: kind, slices to the window, length of a slice, limit
-- state: kind, slices, length, written at, and one counter more than slices, that of the newest slice first
local FIRST, MOST_SLICES = 5, 60

-- Returns true if a state counts in the slices of a rule.
local function is_own(rule, state)
  return state and state[2] == rule[2] and state[3] == rule[3]
end

-- The counters of a state as of slice `slice` of a rule, the newest first; its calls counted as late as they
-- can have come where the rule has other slices.
local function counters(rule, state, slice)
  local slices, length = rule[2], rule[3]
  local counting = {}
  local is_own = is_own(rule, state)
  local passed = is_own and math.min(slice - div_floor(state[4], length), slices + 1)
  for n = 1, passed or slices + 1 do
    counting[n] = 0
  end
  if is_own then
    for n = passed + 1, slices + 1 do
      counting[n] = state[FIRST - 1 + n - passed]
    end
  end
  if is_own or not state then
    return counting
  end
  local latest = state[4]
  for n = FIRST, FIRST + state[2] do
    local age = slice - div_floor(latest, length)
    if age > slices then
      break
    end
    counting[age + 1] = counting[age + 1] + state[n]
    -- The last microsecond before this slice.
    latest = latest - fmod(latest, state[3]) - 1
    if latest < 0 then
      break
    end
  end
  return counting
end

shapes[KIND] = function(state)
  local slices, length = state[2], state[3]
  local is_compared, is_whole = pcall(are_whole, state, 0)
  return is_compared and is_whole and #state >= FIRST + 1 and #state == FIRST + slices and slices <= MOST_SLICES
    and length > 0 and slices * length < LIMIT
end

ends[KIND] = function(rule, state)
  local slice = div_floor(state[4], rule[3])
  for n, count in ipairs(counters(rule, state, slice)) do
    if count > 0 then
      return (slice - (n - 1) + rule[2] + 1) * rule[3]
    end
  end
  return state[4]
end

steps[KIND] = function(rule, state, now, cost)
  local slices, length, limit = rule[2], rule[3], rule[4]
  -- include sliding_window/estimate
  if estimate + cost > limit then
    return false
  end
  local counting = counters(rule, state, slice)
  counting[1] = counting[1] + cost
  return true, { KIND, slices, length, at, unpack(counting) }
end

--- section: estimate
-- Finds the `estimate` of what lies in the window as of `at`, which is never before the last write. A state of the same slices is not copied: of its counters,
-- the newest one first, the `passed` oldest ones do not matter any more.
local at = state and math.max(now, state[4]) or now
local slice = div_floor(at, length)
local list, first, passed = state, FIRST, 0
if is_own(rule, state) then
  passed = math.min(slice - div_floor(state[4], length), slices + 1)
else
  list, first = counters(rule, state, slice), 1
end
local estimate = 0
for n = first, first + slices - 1 - passed do
  estimate = estimate + list[n]
end
if estimate <= limit then
  -- Of the oldest one, the part that is still inside: exact up to the limit, and far above it no matter how.
  local inside = length - fmod(at, length)
  local oldest = passed <= slices and list[first + slices - passed] or 0
  estimate = estimate + div_ceil(oldest * inside, length)
end

--- section: settle
-- Corrects the counter of the slice that was charged, in the slices that the state counts in.
settles[KIND] = function(rule, state, now, charge)
  local more = charge.actual - charge.cost
  if more == 0 or not state and more < 0 then
    return nil
  end
  local slices, length, at = rule[2], rule[3], now
  if state then
    slices, length, at = state[2], state[3], math.max(now, state[4])
  end
  local slice = div_floor(at, length)
  local age = slice - div_floor(charge.at, length)
  if age < 0 or age > slices then
    return nil
  end
  local counting = counters({ KIND, slices, length }, state, slice)
  counting[age + 1] = math.min(math.max(0, counting[age + 1] + more), LIMIT - 1)
  return { KIND, slices, length, at, unpack(counting) }
end

--- section: remaining
remainders[KIND] = function(rule, state, now)
  local slices, length, limit = rule[2], rule[3], rule[4]
  -- include sliding_window/estimate
  return math.max(0, limit - estimate)
end
