-- States of several kinds under one key: while two releases run whose rules are of different kinds, each keeps its own.
--
-- A value is { VERSION, part, ... } where there is one state, and { SEVERAL, { stop, part, ... }, ... } where there are
-- several, each with the microsecond from which on it says no more.

-- What the parts of a rule or a state are: those of one kind read each other's states.
local function kind_of(parts)
  local head = parts[1]
  return head[2] and head[1] == 0 and table.concat(head, ' ') or head[1]
end

-- The states of a value by their kinds; each has its parts, and when it stops to matter if the value tells it.
local function by_kind(value)
  local states = {}
  if table.remove(value, 1) == VERSION then
    states[kind_of(value)] = { parts = value }
    return states
  end
  for _, parts in ipairs(value) do
    local stop = table.remove(parts, 1)
    states[kind_of(parts)] = { parts = parts, stop = stop }
  end
  return states
end

-- The value for states by their kinds, without those that stopped to matter before `since`; and when the last of them does. A
-- state that does not tell was alone, and matters until its key expires.
local function value_of(states, name, now, since)
  local value, last = { SEVERAL }, now
  for _, state in pairs(states) do
    local stop = state.stop or now + redis.call('PTTL', name) * 1000
    if stop > since then
      value[#value + 1] = { stop, unpack(state.parts) }
      last = math.max(last, stop)
    end
  end
  if #value == 2 then
    value = value[2]
    value[1] = VERSION
  end
  return cmsgpack.pack(value), last
end
