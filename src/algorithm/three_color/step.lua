-- rule: kind, colour that was given before (0 green, 1 yellow, 2 red), and the committed and the peak bucket
-- state: kind, written at, level and gain of the committed bucket, and of the peak one
local COMMITTED, PEAK = 3, 8

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
