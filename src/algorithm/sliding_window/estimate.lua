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
