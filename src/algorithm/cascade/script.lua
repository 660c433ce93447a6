-- Sections, which programs are assembled from: `Lua` in `registry.rs` names their duties.

--- section: step
-- rule: kind, and six numbers for each bucket
-- state: kind, and for each bucket written at, level, gain
local MOST = 8

shapes[KIND] = function(state)
  for n = 2, #state, 3 do
    if not (is_natural(state[n]) and has_level(state, n + 1)) then
      return false
    end
  end
  return #state >= 4 and #state <= 1 + 3 * MOST
end

-- The state of the rule's buckets, and the last write to any of them; a bucket that was added since is empty at
-- that time.
local function first(rule, state)
  local known, last = { KIND }, 0
  for n = 2, math.min(#state, 1 + (#rule - 1) / 6 * 3), 3 do
    known[n], known[n + 1], known[n + 2] = state[n], state[n + 1], state[n + 2]
    last = math.max(last, state[n])
  end
  for n = #known + 1, 1 + (#rule - 1) / 6 * 3, 3 do
    known[n], known[n + 1], known[n + 2] = last, 0, 1
  end
  return known, last
end

ends[KIND] = function(rule, state)
  local known, last = first(rule, state)
  for bucket = 0, (#rule - 1) / 6 - 1 do
    local n = 2 + 3 * bucket
    last = math.max(last, rests_at(rule, 2 + 6 * bucket, known[n], known[n + 1], known[n + 2]))
  end
  return last
end

steps[KIND] = function(rule, state, now, cost)
  local buckets = (#rule - 1) / 6
  local capacity = 0
  for n = 2, #rule, 6 do
    capacity = math.max(capacity, rule[n + 2] - rule[n + 5])
  end
  -- include cascade/known
  for bucket = 0, buckets - 1 do
    local n, own = 2 + 3 * bucket, 2 + 6 * bucket
    local level = new[n + 1]
    if state then
      level = filled(rule, own, level, new[n + 2], at - new[n])
    end
    local rest = paid(rule, own, level, cost)
    if rest then
      new[n], new[n + 1], new[n + 2] = at, rest, rule[own]
      return true, new
    end
  end
  -- The first sight of a key that does not start at rest is remembered: from here on it fills.
  if not state and not at_rest and cost <= capacity then
    return false, new
  end
  return false
end

--- section: known
-- Reads the `state` of a key `now`, nil if it is forgotten: its buckets as `new`, which begin afresh without a state, and the instant `at`, which
-- is never before the last write. Also whether a new key is at rest.
local at_rest = true
for n = 2, #rule, 6 do
  at_rest = at_rest and starts_full(rule, n)
end
if state and not at_rest and now >= ends[KIND](rule, state) then
  state = nil
end
local new, at = { KIND }, now
if state then
  new, at = first(rule, state)
  at = math.max(now, at)
else
  for n = 2, #rule, 6 do
    local last = #new
    new[last + 1], new[last + 2], new[last + 3] = now, rule[n + 3] * rule[n + 1], rule[n]
  end
end

--- section: settle
-- Corrects the bucket that paid.
settles[KIND] = function(rule, state, now, charge)
  local n, own = 2 + 3 * charge.class, 2 + 6 * charge.class
  if not rule[own] then
    return nil
  end
  -- include cascade/known
  local paid, level, from
  if state then
    paid, level, from = new[n], new[n + 1], new[n + 2]
  end
  local left_at, left = corrected(rule, own, paid, level, from, at, charge, least_end(rule, own, charge))
  if not left_at then
    return nil
  end
  new[n], new[n + 1], new[n + 2] = left_at, left, rule[own]
  return new
end
