-- Finds what counts as of `at`, which is never before the newest entry: the `log` without the rest, and its `units`.
local log = { KIND }
local at, units = now, 0
if state then
  at = math.max(now, state[#state - 1])
  for n = 2, #state, 2 do
    if at - state[n] < period then
      log[#log + 1], log[#log + 2] = state[n], state[n + 1]
      units = units + state[n + 1]
    end
  end
end
