-- Finds the `count` of the window that holds `now`, when it began, `first`, and the instant `at`, which is never before that.
local at, first, count = now, now, 0
if state then
  at = math.max(now, state[2])
  first = at
  if state[4] > 0 and now < state[3] then
    first, count = state[2], state[4]
  end
end
