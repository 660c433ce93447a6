-- Makes the deltas of keys that have nothing but a token bucket that starts full, or no value yet, as the driver would make them. By far most keys are such ones:
-- this takes a quarter of the driver's time for them, and none for its functions.
--
-- `values` are those of all keys, and `made[key]` is what the answer has for a key, or false. The driver makes the deltas of the other keys, which are `left`.
local MARKS, MOST_MARKS = 64, 128
local values, made, left = {}, {}, {}
for n = 1, logs[1] or #KEYS do
  values[n] = redis.pcall('GET', KEYS[n])
end
if logs[1] then
  left = request[5]
else
  -- include token_bucket/kind
  local pack = cmsgpack.pack
  -- Of each key: when its bucket was left, and at which level, of which gain a microsecond; the numbers of nodes; whether these come first in its value; and
  -- whether it is left to the driver.
  -- And when it stops to matter, if its value tells.
  local ats, levels, gains, lists, are_first, is_left, stops = {}, {}, {}, {}, {}, {}, {}
  for n, bytes in ipairs(values) do
    local at, level, from, expires, is_wide
    if bytes and #bytes == 32 then
      -- include buckets/wide
    elseif bytes and type(bytes) == 'string' then
      -- What is written below, and by the driver.
      local whole, value = pcall(cmsgpack.unpack, bytes)
      local is_ours = whole and type(value) == 'table' and #value == 3 and value[1] == SEVERAL and pack(value) == bytes
      local one, other = is_ours and value[2], is_ours and value[3]
      if type(one) == 'table' and type(other) == 'table' and #one == 2 and #other == 2
        and type(one[2]) == 'table' and type(other[2]) == 'table' and type(one[1]) == 'number' and type(other[1]) == 'number' then
        are_first[n] = one[2][1] == MARKS
        local list, bucket = other[2], one[2]
        if are_first[n] then
          list, bucket = bucket, list
        end
        is_wide = list[1] == MARKS and #list % 2 == 1 and bucket[1] == KIND and #bucket == 4
        for _, numbers in ipairs(is_wide and { { one[1], other[1] }, list, bucket } or {}) do
          for index, number in ipairs(numbers) do
            local least = numbers == bucket and index == 3 and 1 - LIMIT or 0
            is_wide = is_wide and type(number) == 'number' and number >= least and number < LIMIT and number % 1 == 0
          end
        end
        at, level, from = bucket[2], bucket[3], bucket[4]
        is_wide = is_wide and from > 0 and from <= MOST_GAIN
        lists[n] = list
        stops[n] = (are_first[n] and other or one)[1]
      end
    end
    ats[n], levels[n], gains[n] = at, level, from
    -- A level at the end of all numbers stays where it is.
    is_left[n] = bytes and not (is_wide and level > -LIMIT / 2)
  end
  for _, delta in ipairs(request[5]) do
    local key, rule = delta[2], rules[delta[1]]
    local kind, gain, price, burst, initial = unpack(rule[1])
    if values[key] or delta[#delta] > 0 then
      local is_plain = kind == KIND and not rule[2] and initial == burst and gain == (gains[key] or gain)
      is_left[key] = is_left[key] or not is_plain
      gains[key] = gain
    end
  end
  local last_rules = {}
  -- Notes until when a bucket matters to the last rule that wrote it. No write brings that forward, as in the driver.
  local function extend(key)
    local rule = last_rules[key]
    if rule then
      local gain, full = rule[2], rule[3] * rule[4]
      local rest = math.fmod(levels[key] - full, gain)
      if rest < 0 then
        rest = rest + gain
      end
      local stop = stops[key] or values[key] and now + redis.call('PTTL', KEYS[key]) * 1000 or 0
      stops[key] = math.max(stop, now + 1, ats[key] + (full - levels[key] + rest) / gain)
    end
  end
  for _, delta in ipairs(request[5]) do
    local key, charge, node, number, rule = delta[2], delta[3], delta[#delta - 1], delta[#delta], rules[delta[1]][1]
    if is_left[key] then
      left[#left + 1] = delta
    elseif number > 0 then
      local list = lists[key] or { MARKS }
      -- include sync/number
      if is_new then
        local gain, price, full = rule[2], rule[3], rule[3] * rule[4]
        local before, at, level = ats[key], math.max(now - charge[1], 0), full
        if last_rules[key] ~= rule then
          extend(key)
          last_rules[key] = rule
        end
        if before then
          level = math.min(levels[key] + math.max(at - before, 0) * gain, full)
          at = math.max(at, before)
        else
          are_first[key] = are_first[key] ~= false
        end
        ats[key], levels[key] = at, math.max(level - charge[3] * price, 1 - LIMIT)
        lists[key] = list
      end
    end
  end
  local put, late = redis.pcall, {}
  for key, bytes in ipairs(values) do
    local rule = last_rules[key]
    if not is_left[key] then
      made[key] = bytes
    end
    if rule then
      extend(key)
      local at, level, gain, stop = ats[key], levels[key], rule[2], stops[key]
      -- As long as a delta may be repeated.
      local last = math.min(stop + 60000000, LIMIT - 1)
      local list, bucket = pack(lists[key]), '\148\1' .. pack(at, level, gain)
      local value, found
      if are_first[key] then
        value = '\147\2\146' .. pack(last) .. list .. '\146' .. pack(math.min(stop, LIMIT - 1)) .. bucket
        found = '\147\2\146\0' .. list .. '\146\0' .. bucket
      else
        value = '\147\2\146' .. pack(math.min(stop, LIMIT - 1)) .. bucket .. '\146' .. pack(last) .. list
        found = '\147\2\146\0' .. bucket .. '\146\0' .. list
      end
      local millis = math.ceil((last - now) / 1000) + more
      -- Numbers take long to become text; many keys share this one.
      local text = late[millis] or string.format('%d', millis)
      late[millis] = text
      local is_set = put('SET', KEYS[key], value, 'PX', text)
      -- Only the first write can fail because the server is full or read-only.
      if is_set.err then
        answer[5], left = is_set.err, {}
        break
      end
      put, made[key] = redis.call, found
    end
  end
end
if not left[1] then
  for n = 1, #values do
    admitted[n], answer[n + 5] = 0, made[n] or false
  end
  answer[2] = admitted
  return cmsgpack.pack(answer)
end
request[5] = left
for key in pairs(made) do
  values[key] = false
end
