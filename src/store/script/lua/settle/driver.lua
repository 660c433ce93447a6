-- Corrects earlier charges, in order, before any call is decided. The answer has the states after the corrections.
--
-- `request[5]` is a list of corrections: the rule, the key, and for each part of the rule its charge as a list of numbers: the time, the
-- units, the actual cost and the class; the call's departure and the end of the charge on the time axis of a bucket, each in microseconds
-- and nanoseconds beyond them, or -1 if unknown; and the microseconds that had been refunded to the key before, less than 0 (-1 for 0, and
-- so on) if the bucket refunds only if the charge is the last one.
--
-- `settles[kind]` returns the corrected state, nil if it is as it was, or false if nothing is left of it; and true if nothing is refunded because
-- too much was before.

local function charge_of(numbers)
  local at, cost, actual, class, departs, departs_nanos, ends, ends_nanos, refunded = unpack(numbers)
  return {
    at = at,
    cost = cost,
    actual = actual,
    class = class,
    departs = departs >= 0 and departs or nil,
    departs_nanos = departs_nanos,
    ends = ends >= 0 and ends or nil,
    ends_nanos = ends_nanos,
    refunded = refunded < 0 and -1 - refunded or refunded,
    if_last = refunded < 0,
  }
end

-- Returns true if two states of one kind are equal. Either may be missing.
local function is_same(one, other)
  if not one or not other then
    return not one and not other
  end
  for n = 1, math.max(#one, #other) do
    if one[n] ~= other[n] then
      return false
    end
  end
  return true
end

-- Returns a state after a correction, or nil if it has not changed. Parts of other kinds of rules stay as they are.
local function settled(rule, state, charges, beside)
  local after, changed, forgotten = {}, false, 0
  for n, part in ipairs(rule) do
    local log = beside and beside[n]
    local known = checked(part, state, n, log)
    after[n] = state[n] or false
    if part[1] == ALL then
      -- The head of several has no charge.
      after[n] = part
    elseif known or not state[n] then
      local charge, at = charge_of(charges[n + 2]), now
      -- (as of)
      local new, forgets = settles[part[1]](part, known, at, charge, log)
      if forgets then
        forgotten = 1
      end
      if new ~= nil and not is_same(new, known) then
        after[n], changed = new, true
      end
    end
  end
  answer[4] = answer[4] + forgotten
  return changed and after or nil
end

-- (marks)

for _, correction in ipairs(request[5]) do
  local rule, key = correction[1], correction[2]
  local state = known_to(rule, key)
  local after = settled(rules[rule], state.parts, correction, state.logs)
  if after then
    write_state(state, written(state, after, rule))
    is_changed[key] = true
  end
end
