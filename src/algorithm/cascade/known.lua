-- Reads the `state` of a key `now`, nil if it is forgotten: its buckets as `new`, which begin afresh without a state, and the instant `at`, which
-- is never before the last write. Also whether a new key is at rest.
local at_rest = true
for n = 2, #rule, 5 do
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
  for n = 2, #rule, 5 do
    local last = #new
    new[last + 1], new[last + 2], new[last + 3] = now, rule[n + 3] * rule[n + 1], rule[n]
  end
end
