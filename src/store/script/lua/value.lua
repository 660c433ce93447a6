-- When a state stops to matter. One that does not tell was alone, and matters until its key expires.
local function stop_of(state, name, now)
  return state.stop or now + (redis.call('PTTL', name) - more) * 1000
end

-- The value for states, without those that stopped to matter before `since`, and when the last of them does; nil if there is
-- none.
local function value_of(states, name, now, since)
  local value, last = { SEVERAL }, now
  for _, state in ipairs(states) do
    local stop = math.min(stop_of(state, name, now), LIMIT - 1)
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
