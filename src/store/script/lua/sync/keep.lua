-- Sequence numbers are kept for a minute longer than all states, because a delta may be repeated.
local are_states_written = are_written
are_written = function(states, name)
  local any, marks, last = are_states_written(states, name), nil, now
  for _, state in ipairs(states) do
    if state.is_new then
      marks = state
    elseif state.parts[1] then
      last = math.max(last, stop_of(state, name, now))
    end
  end
  if marks then
    marks.stop = last + 60000000
  end
  return any or marks
end
