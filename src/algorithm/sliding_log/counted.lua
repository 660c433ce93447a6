-- Finds the `units` that count as of `at`, which is never before the newest slot; and the slots that are over, with the units of these.
local at, units, over, gone = now, 0, 0, 0
if state then
  at = math.max(now, state[6])
  over, gone = over_at(log, state, at - period)
  units = state[5] - gone
end
