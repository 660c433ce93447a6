-- Sections, which programs are assembled from: `Lua` in `registry.rs` names their duties.

--- section: step
-- rule: kind, colour that was given before (0 green, 1 yellow, 2 red), and the committed and the peak bucket
-- state: kind, written at, level and gain of the committed bucket, and of the peak one
local COMMITTED, PEAK = 3, 9

shapes[KIND] = function(state)
  return #state == 6 and is_natural(state[2]) and has_level(state, 3) and has_level(state, 5)
end

ends[KIND] = function(rule, state)
  return math.max(
    rests_at(rule, COMMITTED, state[2], state[3], state[4]),
    rests_at(rule, PEAK, state[2], state[5], state[6])
  )
end

steps[KIND] = function(rule, state, now, cost)
  local at, given = now, rule[2]
  -- Both start full.
  local committed, peak = rule[COMMITTED + 2] * rule[COMMITTED + 1], rule[PEAK + 2] * rule[PEAK + 1]
  if state then
    at = math.max(now, state[2])
    committed = filled(rule, COMMITTED, state[3], state[4], at - state[2])
    peak = filled(rule, PEAK, state[5], state[6], at - state[2])
  end
  peak = paid(rule, PEAK, peak, cost)
  if given == 2 or not peak then
    return false
  end
  local green = given == 0 and paid(rule, COMMITTED, committed, cost)
  return true, { KIND, at, green or committed, rule[COMMITTED], peak, rule[PEAK] }
end

--- section: settle
local GREEN, YELLOW = 0, 1

-- Corrects the buckets that a call of its colour spends.
settles[KIND] = function(rule, state, now, charge)
  if charge.class ~= GREEN and charge.class ~= YELLOW then
    return nil
  end
  local written = state and state[2]
  local at = state and math.max(now, written) or now
  -- Returns whether a bucket was corrected; and when it was left, its level and its gain, corrected or as they were.
  local function settled(n, index)
    local left_at, left
    if n == PEAK or charge.class == GREEN then
      local level, from = state and state[index], state and state[index + 1]
      left_at, left = corrected(rule, n, written, level, from, at, charge, least_end(rule, n, charge))
    end
    if left_at then
      return true, left_at, left, rule[n]
    elseif state then
      return false, written, state[index], state[index + 1]
    end
    return false
  end
  local is_green, green_at, green, green_gain = settled(COMMITTED, 3)
  local is_peak, peak_at, peak, peak_gain = settled(PEAK, 5)
  if not is_green and not is_peak then
    return nil
  end
  -- If one bucket has filled up meanwhile, it is corrected now and the other one at the charge.
  local last = math.max(green_at or 0, peak_at or 0)
  local function level_of(n, left_at, left, gain)
    return left_at and filled(rule, n, left, gain, last - left_at) or rule[n + 2] * rule[n + 1]
  end
  green, peak = level_of(COMMITTED, green_at, green, green_gain), level_of(PEAK, peak_at, peak, peak_gain)
  return { KIND, last, green, rule[COMMITTED], peak, rule[PEAK] }
end
