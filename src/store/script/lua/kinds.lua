-- States of several kinds under one key: while two releases run whose rules are of different kinds, each keeps its own.
--
-- A value is { VERSION, part, ... } where there is one state, and { SEVERAL, { stop, part, ... }, ... } where there are
-- several, each with the microsecond from which on it says no more.

-- Returns the kinds of the parts of a rule or a state, from place `first` on: those of one kind read each other's states.
local function kind_of(parts, first)
  local head = parts[first]
  return head[2] and head[1] == 0 and table.concat(head, ' ') or head[1]
end

-- The states of a value: of each its kind, its parts, and when it stops to matter if the value tells it.
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

-- The value for states, without those that stopped to matter before `since`, and when the last of them does; nil if there is
-- none. A state that does not tell was alone, and matters until its key expires.
local function value_of(states, name, now, since)
  local value, last = { SEVERAL }, now
  for _, state in ipairs(states) do
    local stop = math.min(state.stop or now + redis.call('PTTL', name) * 1000, LIMIT - 1)
    if stop > since then
      last = math.max(last, stop)
      value[#value + 1] = state.parts
      table.insert(state.parts, 1, stop)
    end
  end
  if #value == 1 then
    return nil
  elseif #value == 2 then
    value = value[2]
    value[1] = VERSION
  end
  return cmsgpack.pack(value), last
end
