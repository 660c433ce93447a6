-- States of several kinds under one key: while two releases run whose rules are of different kinds, each keeps its own.
--
-- A value is { VERSION, part, ... } where there is one state, and { SEVERAL, { stop, part, ... }, ... } where there are
-- several, each with the microsecond from which on it says no more.

-- Returns the kinds of the parts of a rule or a state, from index `first` on: those of one kind read each other's states.
local function kind_of(parts, first)
  local head = parts[first]
  return head[2] and head[1] == 0 and table.concat(head, ' ') or head[1]
end

-- The states of a value: of each its kind, its parts, and when it stops to matter if the value has it.
local function states_of(value)
  if table.remove(value, 1) == VERSION then
    return { { kind = kind_of(value, 1), parts = value } }
  end
  local states = {}
  for n, parts in ipairs(value) do
    local stop = table.remove(parts, 1)
    states[n] = { kind = kind_of(parts, 1), parts = parts, stop = stop }
  end
  return states
end
