-- Finds what counts as of `at`, which is never before the newest entry: the entries from place `first` on, and their `units`.
local at, units, first = now, 0, 2
if state then
  at, first = math.max(now, state[#state - 1]), #state + 1
  while first > 2 and at - state[first - 2] < period do
    first = first - 2
    units = units + state[first + 1]
  end
end
