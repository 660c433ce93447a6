-- The form of a state: this side of it, and `state_of_parts` of each rule on the other, have the same bounds.

-- Returns true for a whole number from zero on that stays exact. A text is none, even if it reads like one.
local function is_natural(x)
  return type(x) == 'number' and x % 1 == 0 and x >= 0 and x < LIMIT
end

-- Returns true if a level and its gain are in a state from index `n` on.
local function has_level(state, n)
  local level, gain = state[n], state[n + 1]
  return type(level) == 'number' and is_natural(math.abs(level)) and is_natural(gain)
    and gain > 0 and gain <= MOST_GAIN
end

-- Returns true for the state of a token bucket.
local function is_bucket(state)
  return (#state == 4 or #state == 6 and is_natural(state[5]) and is_natural(state[6]))
    and is_natural(state[2]) and has_level(state, 3)
end

-- Returns true if a list has whole numbers from index 2 on, which are at least `least`. To compare anything else with a number is an error: one call
-- notices it for all, as a log has thousands of numbers.
local function are_whole(list, least)
  for n = 2, #list do
    local number = list[n]
    if number < least or number >= LIMIT or number % 1 ~= 0 then
      return false
    end
  end
  return true
end

-- Returns true if these are parts from index 2 on: lists of whole numbers, or false, the first one a list that begins with its kind.
local function has_parts(state)
  if type(state) ~= 'table' or type(state[2]) ~= 'table' or not is_natural(state[2][1]) then
    return false
  end
  -- More than fit as arguments of a call are none.
  for n = 2, #state do
    local part = state[n]
    if n > 1000 or part and (type(part) ~= 'table' or part[1] and not is_natural(part[1])) then
      return false
    end
    local is_compared, is_whole = pcall(are_whole, part or {}, 1 - LIMIT)
    if not (is_compared and is_whole) then
      return false
    end
  end
  return true
end

-- Returns true for a value that these programs write, as far as its algorithms are not needed to know; it was unpacked
-- from `bytes`.
--
-- These say what a table does not show: whether it was a list, and one without gaps.
local function is_state(state, bytes)
  if type(state) ~= 'table' then
    return false
  end
  -- By far the most are one short list, of one rule.
  local outer, version, inner = string.byte(bytes, 1, 3)
  if outer == 0x92 and version == VERSION and type(state[2]) == 'table' and inner == 0x90 + #state[2]
    and is_natural(state[2][1]) and state[2][1] > 0 then
    -- One number from 2^63 on comes out of them below zero; these bytes can also be part of others.
    if string.find(bytes, '\207[\128-\255]') then
      for _, number in ipairs(state[2]) do
        if type(number) == 'number' and number < 0 and number > -LIMIT
          and string.find(bytes, '\207' .. struct.pack('>i8', number), 1, true) then
          return false
        end
      end
    end
    return true
  end
  if state[1] == SEVERAL then
    local seen = {}
    for n = 2, #state do
      local parts = state[n]
      if not (has_parts(parts) and is_natural(parts[1])) or seen[kind_of(parts, 2)] then
        return false
      end
      seen[kind_of(parts, 2)] = true
    end
  elseif not (state[1] == VERSION and has_parts(state)) then
    return false
  end
  return cmsgpack.pack(state) == bytes
end
