-- Decides many calls at once, on the data.
--
-- KEYS: where the states lie. ARGV[1]: a request in MessagePack,
--   { now, rules, calls }
-- with `now` in microseconds, or 0 for the server's clock; each rule a list of parts, and each part a list of
-- whole numbers that begins with its kind; and all calls in one list of numbers: how many asks, and
-- for each of them the rule, the key and the cost.
--
-- A state is a list in MessagePack: the version of its form, and for each part of the rule that wrote it a
-- list of numbers that begins with the kind, or false.
--
-- Answers, in MessagePack, the time, the number of calls that were admitted, the number of states that
-- could not be read, and for each key the state that was found, or false. All decisions follow from these.

local request = cmsgpack.unpack(ARGV[1])
local now, rules, calls = request[1], request[2], request[3]
if now == 0 then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end

local states, dirty, answer = {}, {}, { now, 0, 0 }
for n = 1, #KEYS do
  local bytes = redis.pcall('GET', KEYS[n])
  -- include readable
  answer[n + 3] = bytes
  states[n] = {}
  if bytes then
    local whole, state = pcall(cmsgpack.unpack, bytes)
    if whole and is_state(state, bytes) then
      table.remove(state, 1)
      states[n] = state
    else
      answer[3] = answer[3] + 1
      answer[n + 3] = false
    end
  end
end

-- What is remembered for a part of a rule: that of another algorithm says nothing to it.
local function own(part, before)
  return type(before) == 'table' and before[1] == part[1] and before or nil
end

-- A part that stands in front of several rules, and in front of their states.
local ALL = 0

shapes[ALL] = function(state)
  return #state == 1
end

steps[ALL] = function(rule)
  return true, rule
end

ends[ALL] = function()
  return 0
end

-- All parts of a rule step together or not at all. Returns whether they admit, and the state afterwards; nil
-- if it is as it was.
local function step(rule, state, cost)
  local after, admitted, seen = {}, true, false
  if rule[1][1] == ALL and not (own(rule[1], state[1]) and shapes[ALL](state[1])) then
    -- What one rule wrote says nothing to several.
    state = {}
  end
  for n, part in ipairs(rule) do
    local known = own(part, state[n])
    if known and not shapes[part[1]](known) then
      -- Numbers that are no state of this algorithm.
      known, state[n], answer[3] = nil, false, answer[3] + 1
    end
    local passes, new = steps[part[1]](part, known, now, cost)
    admitted = admitted and passes
    seen = seen or (new and not passes)
    after[n] = { passes, new, state[n] or false }
  end
  if not admitted and not seen then
    return false
  end
  for n, part in ipairs(after) do
    local passes, new, before = part[1], part[2], part[3]
    -- Of a refused call, only what a refusal writes.
    after[n] = new and (admitted or not passes or rule[n][1] == ALL) and new or before
  end
  return admitted, after
end

local at = 1
while calls[at] do
  local asks = calls[at]
  at = at + 1
  local after, all = {}, true
  for n = 0, asks - 1 do
    local rule, key, cost = calls[at + 3 * n], calls[at + 3 * n + 1], calls[at + 3 * n + 2]
    -- Several asks of a call may be about one key.
    local admitted, new = step(rules[rule], after[key] and after[key][1] or states[key], cost)
    all = all and admitted
    if new then
      after[key] = { new, admitted, rule }
    end
  end
  for key, new in pairs(after) do
    if all or not new[2] then
      states[key], dirty[key] = new[1], new[3]
    end
  end
  if all then
    answer[2] = answer[2] + 1
  end
  at = at + 3 * asks
end

for key, rule in pairs(dirty) do
  local state, expires = states[key], now + 1
  for n, part in ipairs(rules[rule]) do
    local known = own(part, state[n])
    if known then
      expires = math.max(expires, ends[part[1]](part, known))
    end
  end
  table.insert(state, 1, VERSION)
  -- At least a millisecond, and rounded up. A time that was told does not pass here: a minute more.
  local keep = div_ceil(expires - now, 1000) + (request[1] == 0 and 0 or 60000)
  redis.call('SET', KEYS[key], cmsgpack.pack(state), 'PX', keep)
end

return cmsgpack.pack(answer)
