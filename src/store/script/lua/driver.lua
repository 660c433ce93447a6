-- Decides many calls at once, on the data.
--
-- KEYS: where the states lie. ARGV[1]: a request in MessagePack,
--   { now, rules, calls, logs }
-- with `now` in microseconds, or 0 for the server's clock; each rule a list of parts, and each part a list of
-- whole numbers that begins with its kind; and all calls in one list of numbers: how many asks, and
-- for each of them the rule, the key and the cost. A look is a call of -1 asks: one, which is not charged. The program that grants takes STRIDE
-- numbers an ask, one more (`grant.lua`). `logs` are numbers, too: how many of KEYS are those of states, and for each log beside a state
-- the rule, the key, the part of the rule, and which of the other KEYS it is.
--
-- Several asks are spent together or not at all by the rule of `store/engine/all_or_nothing.rs`, written once more because the states are
-- here. The other side repeats each decision by that file, and both count the admissions.
--
-- The programs that settle take corrections as a fifth element, and make them before they decide calls (`settle/driver.lua`).
--
-- A state has for each part of the rule that wrote it a list of numbers that begins with the kind, or false.
--
-- Answers, in MessagePack, the time; for each key the number of calls that were admitted whose first ask is about it; the
-- number of values that could not be read, and of corrections that gave nothing back; why nothing could be written, or false, and then nothing was; and for each key
-- the value that was found, or false; after corrections, and with what was read of its logs. All decisions follow from these.

for n = 1, logs[1] or #KEYS do
  local bytes = redis.pcall('GET', KEYS[n])
  -- include readable
  answer[n + 5] = bytes
  known[n], admitted[n] = {}, 0
  if bytes then
    local whole, value = pcall(cmsgpack.unpack, bytes)
    if whole and is_state(value, bytes) then
      known[n] = states_of(value)
    else
      answer[3] = answer[3] + 1
      answer[n + 5] = false
    end
  end
end
answer[2] = admitted
-- (made)

local kinds = {}
for n, rule in ipairs(rules) do
  kinds[n] = kind_of(rule, 1)
end

-- Returns the state of a rule's kind under a key; creates it if there is none.
local function known_to(rule, key)
  local kind, states = kinds[rule], known[key]
  for n = 1, #states do
    if states[n].kind == kind then
      return states[n]
    end
  end
  local state = { kind = kind, parts = {}, stop = 0 }
  states[#states + 1] = state
  return state
end

-- Keys whose states are not returned as they were found.
local is_changed = {}

for n = 2, #logs, 4 do
  local key, part = logs[n + 1], logs[n + 2]
  local state = known_to(logs[n], key)
  state.logs = state.logs or {}
  -- An expired state may have lost its log.
  state.parts = (state.stop or LIMIT) > now - more * 1000 and state.parts or {}
  state.logs[part] = { name = KEYS[logs[n + 3]], changed = {}, seen = {} }
  is_changed[key] = true
end

-- Returns the state of a part of a rule; nil if that is of another algorithm.
local function own(part, before)
  return type(before) == 'table' and before[1] == part[1] and before or nil
end

-- Returns the state of a part of a rule, which is number `n` of a state; nil if there is none. Numbers that are no state of its algorithm are
-- counted as healed, and then removed.
local function checked(part, state, n, log)
  local before = own(part, state[n])
  if before and not shapes[part[1]](before, log) then
    before, state[n], answer[3] = nil, false, answer[3] + 1
  end
  return before
end

-- The part in front of several rules, and in front of their states. It contains their kinds.
local ALL = 0

shapes[ALL] = function()
  return true
end

steps[ALL] = function(rule)
  return true, rule
end

ends[ALL] = function()
  return 0
end

-- All parts of a rule step together or not at all. Returns true if they admit, and the parts of the state afterwards; nil
-- if the state has not changed.
local function step(rule, state, cost, beside)
  local after, all, seen = {}, true, false
  for n, part in ipairs(rule) do
    local log = beside and beside[n]
    local before = checked(part, state, n, log)
    local passes, new = steps[part[1]](part, before, now, cost, log)
    all = all and passes
    seen = seen or (new and not passes)
    after[n] = { passes, new, state[n] or false }
  end
  if not all and not seen then
    return false
  end
  for n, part in ipairs(after) do
    local passes, new, before = part[1], part[2], part[3]
    -- Of a refused call, only what a refusal writes.
    after[n] = new and (all or not passes or rule[n][1] == ALL) and new or before
  end
  return all, after
end

-- Returns when a state that a rule wrote stops to matter to it.
local function end_of(rule, state)
  local stop = 0
  for n, part in ipairs(rules[rule]) do
    local before = own(part, state[n])
    if before then
      stop = math.max(stop, ends[part[1]](part, before))
    end
  end
  return stop
end

-- Returns what a rule has written of a state: its parts, the rule, and until when it matters at least to the rules that wrote it before in
-- this request.
local function written(state, parts, rule)
  local least = state.least or 0
  if state.rule and state.rule ~= rule then
    least = math.max(least, end_of(state.rule, state.parts))
  end
  return { parts = parts, rule = rule, least = least }
end

local function write_state(state, new)
  state.parts, state.rule, state.least = new.parts, new.rule, new.least
end

-- (corrections)
-- (seen)
-- (grants)

-- States that the other side decides on.
local found = {}
for key in pairs(is_changed) do
  found[key] = {}
  for n, state in ipairs(known[key]) do
    found[key][n] = { state.parts, state.logs or {} }
  end
end

-- The last call that a state refused, by its parts. An equal one is refused without a look at them: otherwise a batch of one client's
-- calls would cost as much for each of them as for the first.
local refusals = {}

local at = 1
while calls[at] do
  local asks, first, is_look = calls[at], calls[at + 2], calls[at] < 0
  asks, at = math.abs(asks), at + 1
  local after, all, refused, counts = {}, true, nil, 1
  for n = at, at + STRIDE * asks - 1, STRIDE do
    local rule, state, cost = calls[n], known_to(calls[n], calls[n + 1]), calls[n + 2]
    -- Several asks of a call may be about one state.
    local former = after[state] or state
    local parts = former.parts
    -- (granted)
    if after[state] and former.rule ~= rule and state.logs then
      -- The other side looks at the state as it was, too.
      step(rules[rule], state.parts, cost, state.logs)
    end
    local refusal, passes, new = refusals[parts], false, nil
    if not (refusal and refusal[1] == rule and refusal[2] == cost) then
      passes, new = step(rules[rule], parts, cost, state.logs)
      if not passes and not new then
        refusals[parts] = { rule, cost }
      end
    end
    all = all and passes
    if new then
      after[state] = written(former, new, rule)
      if not passes then
        refused = refused or {}
        refused[#refused + 1] = n
      end
    end
  end
  if is_look then
    all = false
  elseif all then
    for state, new in pairs(after) do
      write_state(state, new)
    end
  elseif refused then
    -- The states that a refusal writes stay. They are made anew, without the charges of the other asks.
    for _, n in ipairs(refused) do
      local rule, state = calls[n], known_to(calls[n], calls[n + 1])
      local passes, new = step(rules[rule], state.parts, calls[n + 2], state.logs)
      if new and not passes then
        write_state(state, written(state, new, rule))
      end
    end
  end
  if all and first then
    admitted[first] = admitted[first] + counts
  end
  at = at + STRIDE * asks
end

for key, states in pairs(found) do
  local value = { SEVERAL }
  for n, state in ipairs(states) do
    local parts, beside = state[1], state[2]
    value[n + 1] = { 0, unpack(parts) }
    for index, log in pairs(beside) do
      local part = parts[index]
      local report = part and reports[part[1]]
      if report then
        value[n + 1][index + 1] = report(part, log)
      end
    end
  end
  answer[key + 5] = cmsgpack.pack(value)
end

-- Most requests of clients that are over their limit write nothing. They end here, because each function below takes time to create.
local is_written = false
for _, states in ipairs(known) do
  for _, state in ipairs(states) do
    is_written = is_written or state.rule or state.is_new
  end
end
if not is_written then
  return cmsgpack.pack(answer)
end

-- include value

-- Sets the time at which each written state expires. Returns true if any was written.
--
-- A state may be a debt under a longer rule than the one that writes. So no write brings its end forward.
local function are_written(states, name)
  local any = false
  for _, state in ipairs(states) do
    any = any or state.rule
    if not state.parts[1] then
      -- Missing, not readable, or empty after a correction.
      state.stop = -LIMIT
    elseif state.rule then
      local before = math.max(stop_of(state, name, now), state.least)
      state.stop = math.max(now + 1, before, end_of(state.rule, state.parts))
    end
  end
  return any
end

-- (kept marks)

-- Only the first write can fail because the server is full or read-only. The answer then has its error.
local put = redis.pcall
local function write(...)
  local done = put(...)
  if type(done) == 'table' and done.err then
    answer[5] = done.err
    return false
  end
  put = redis.call
  return true
end

-- Writes the logs beside the states of a key, which are written after them. They are kept for a second longer than these.
local function write_logs(states)
  for _, state in ipairs(states) do
    for index, log in pairs(state.rule and state.logs or {}) do
      local part = rules[state.rule][index]
      local before = own(part, state.parts[index])
      if before then
        local header, commands = writes[part[1]](part, before, now, log)
        state.parts[index] = header
        local keep = div_ceil(state.stop - now, 1000) + more + 1000
        for _, command in ipairs(commands) do
          if command[1] == 'SET' then
            command[4], command[5] = 'PX', keep
          end
          if not write(unpack(command)) then
            return false
          end
        end
        put('PEXPIRE', log.name, keep)
      elseif log.is_empty and not write('DEL', log.name) then
        return false
      end
    end
  end
  return true
end

for n, states in ipairs(known) do
  if are_written(states, KEYS[n]) then
    if not write_logs(states) then
      break
    end
    local value, stop = value_of(states, KEYS[n], now, now - more * 1000)
    local is_done
    if value then
      -- At least a millisecond, and rounded up.
      is_done = write('SET', KEYS[n], value, 'PX', div_ceil(stop - now, 1000) + more)
    else
      is_done = write('DEL', KEYS[n])
    end
    if not is_done then
      break
    end
  end
end

return cmsgpack.pack(answer)
