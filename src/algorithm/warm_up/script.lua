-- Sections, which programs are assembled from: `Lua` in `registry.rs` names their duties.

--- section: step
-- rule: kind, and in units of its own the price of a call, what a second makes, the climb, the greatest warmth and
-- (rise + step) * climb; rise, step, what passes in a second when it is cold, and when it is warm
-- state: kind, second, what passed in it, the warmth at its beginning, and what a second makes in whose units that is
local SECOND = 1000000
-- Later ones have no instant.
local SECONDS = 2 ^ 34

shapes[KIND] = function(state)
  local second, passed, warmth, made = state[2], state[3], state[4], state[5]
  return #state == 5 and is_natural(second) and second < SECONDS and is_natural(passed)
    and is_natural(warmth) and warmth <= MOST_FACTOR and is_natural(made) and made > 0 and made <= MOST_FACTOR
end

-- The warmth of a state, in units of this rule, rounded down.
local function known(rule, state)
  local warmth, made = state[4], state[5]
  if made ~= rule[3] then
    warmth = mul_div(warmth, rule[3], made)
  end
  return math.min(warmth, rule[5])
end

-- The warmth at the beginning of the next second.
local function after(rule, warmth, passed)
  -- Who passes what a cold key may is on the way to being warm: nothing is made against that.
  if warmth >= rule[4] or passed < rule[9] then
    warmth = math.max(0, warmth - rule[3])
  end
  -- Exact up to the greatest, and far above it no matter how.
  return math.min(warmth + passed * rule[2], rule[5])
end

ends[KIND] = function(rule, state)
  local second, warmth = state[2], known(rule, state)
  if state[3] > 0 then
    second, warmth = second + 1, after(rule, warmth, state[3])
  end
  return (second + div_ceil(warmth, rule[3])) * SECOND
end

steps[KIND] = function(rule, state, now, cost)
  local second, warmth, passed = div_floor(now, SECOND), 0, 0
  if state then
    warmth = known(rule, state)
    if second <= state[2] then
      second, passed = state[2], state[3]
    else
      local idle = second - state[2] - 1
      warmth = math.max(0, after(rule, warmth, state[3]) - idle * rule[3])
    end
  end
  passed = passed + cost
  if passed > rule[10] then
    return false
  end
  -- So many are a second's if they cost no more than it makes, at the distance of this warmth to that of a warm key.
  local made, climb = rule[3] * rule[8], rule[4]
  if warmth < climb and not at_most(passed * rule[2], made, climb, rule[6] - rule[7] * warmth) then
    return false
  end
  return true, { KIND, second, passed, warmth, rule[3] }
end

--- section: settle
-- Corrects what passed in the second of the charge, as long as that is the key's last one.
settles[KIND] = function(rule, state, _, charge)
  if not state or div_floor(charge.at, SECOND) ~= state[2] then
    return nil
  end
  local passed = math.min(math.max(0, state[3] - charge.cost) + charge.actual, LIMIT - 1)
  if passed ~= state[3] then
    return { KIND, state[2], passed, known(rule, state), rule[3] }
  end
end
