-- Finds the counters as of `at`, which is never before the last write, and the `estimate` of what lies in the window.
local at = state and math.max(now, state[4]) or now
local slice = div_floor(at, length)
local counting = counters(rule, state, slice)
local estimate = 0
for n = 1, slices do
  estimate = estimate + counting[n]
end
if estimate <= limit then
  -- Of the oldest one, the part that is still inside: exact up to the limit, and far above it no matter how.
  local inside = length - fmod(at, length)
  estimate = estimate + div_ceil(counting[slices + 1] * inside, length)
end
