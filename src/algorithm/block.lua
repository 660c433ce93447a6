-- Sections, which programs are assembled from: `Lua` in `registry.rs` names their duties.

--- section: step
-- rule: kind, microseconds of the block, 1 if it makes a block longer that ends sooner, else 0
-- state: kind, when the block ends, level

shapes[KIND] = function(state)
  return #state == 3 and is_natural(state[2]) and is_natural(state[3]) and state[3] < 256
end

ends[KIND] = function(_, state)
  return state[2]
end

steps[KIND] = function(rule, state, now)
  -- A later end does not fit.
  local stop, level = math.min(now + rule[2], LIMIT - 1), 0
  if state and state[2] > now then
    if rule[3] == 0 or state[2] >= stop then
      return false
    end
    level = state[3]
  end
  return true, { KIND, stop, level }
end

--- section: settle
-- A block is not corrected.
settles[KIND] = function()
end
