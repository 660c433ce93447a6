-- Keeps the deltas that are new to their keys.
--
-- A delta is a correction of no units, followed by its node and its number; without a charge, and with 0 for both, if the state alone is asked for. The last number of each
-- node lies beside the states of a key, as a state of a kind of its own: { MARKS, node, number, ... }, with the most recent node last.
local MARKS, MOST_MARKS = 64, 128

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
  for n = 2, #list - 1, 2 do
    if list[n] == node then
      if list[n + 1] >= number then
        return false
      end
      table.remove(list, n)
      table.remove(list, n)
      break
    end
  end
  if #list >= 2 * MOST_MARKS then
    table.remove(list, 2)
    table.remove(list, 2)
  end
  list[#list + 1] = node
  list[#list + 1] = number
  marks.is_new = true
  return true
end

local deltas, news = request[5], {}
for _, delta in ipairs(deltas) do
  local node, number = unpack(delta, #delta - 1)
  if number > 0 and is_new(delta[2], node, number) then
    news[#news + 1] = delta
  end
end
request[5] = news
