-- Finds the `level` of the bucket as of `at`, which is never before the last write; of a new bucket without a `state`, which is nil also where
-- that is forgotten.
if state and not starts_full(rule, 2) and now >= at_rest_from(rule, state) then
  state = nil
end
local at, level = now, initial * price
if state then
  at = math.max(now, state[2])
  level = filled(rule, 2, state[3], state[4], at - state[2])
end
