-- Keeps the deltas that are new to their keys.
--
-- A delta is a correction of no units, followed by its node and its number; without a charge, and with 0 for both, if the state alone is asked for. The last number of each
-- node lies beside the states of a key, as a state of a kind of its own: { MARKS, node, number, ... }, with the most recent node last.

-- Returns the sequence numbers of a key; creates them if there are none.
local function marks_of(key)
  local states = known[key]
  for n = 1, #states do
    if states[n].kind == MARKS then
      return states[n]
    end
  end
  local marks = { kind = MARKS, parts = { { MARKS } } }
  states[#states + 1] = marks
  return marks
end

-- Records a number. Returns true if the key did not have it.
local function is_new(key, node, number)
  local marks = marks_of(key)
  local list = marks.parts[1]
  -- include sync/number
  marks.is_new = marks.is_new or is_new
  return is_new
end

local deltas, news = request[5], {}
for _, delta in ipairs(deltas) do
  local node, number = unpack(delta, #delta - 1)
  if number > 0 and is_new(delta[2], node, number) then
    news[#news + 1] = delta
  end
end
request[5] = news
