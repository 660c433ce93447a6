-- The other side reads the states, so the answer needs what they read of their logs.
for _, delta in ipairs(deltas) do
  local state = known_to(delta[1], delta[2])
  if state.logs then
    step(rules[delta[1]], state.parts, 1, state.logs)
  end
end
