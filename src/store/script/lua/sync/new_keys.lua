-- Makes the deltas of keys without a value, as the driver would make them: those that ask for the state alone, and the first units of a token bucket
-- that starts full. Most keys of a flood are such ones, and this takes a quarter of the driver's time for them, and none for its functions.
--
-- `values` are those of all keys, and `made[key]` is what the answer has for a key, or false. The driver makes the deltas of the other keys.
local values, made, left = {}, {}, {}
for n = 1, logs[1] or #KEYS do
  values[n] = redis.pcall('GET', KEYS[n])
end
-- Several deltas of one key depend on each other.
if #request[5] ~= #values or logs[1] then
  left = request[5]
else
  -- include token_bucket/kind
  local pack, put, late = cmsgpack.pack, redis.pcall, {}
  for _, delta in ipairs(request[5]) do
    local key, charge, number, rule = delta[2], delta[3], delta[#delta], rules[delta[1]]
    local kind, gain, price, burst, initial = unpack(rule[1])
    if values[key] then
      left[#left + 1] = delta
    elseif number == 0 then
      made[key] = false
    elseif rule[2] or kind ~= KIND or initial ~= burst then
      left[#left + 1] = delta
    else
      local at, full = math.max(now - charge[1], 0), burst * price
      local level = math.max(full - charge[3] * price, 1 - LIMIT)
      local rest = math.fmod(level - full, gain)
      if rest < 0 then
        rest = rest + gain
      end
      local stop = math.max(now + 1, at + (full - level + rest) / gain)
      -- As long as a delta may be repeated.
      local last = math.min(stop + 60000000, LIMIT - 1)
      local marks, bucket = pack(delta[#delta - 1], number), pack(at, level, gain)
      local value = '\147\2\146' .. pack(last) .. '\147\64' .. marks .. '\146' .. pack(math.min(stop, LIMIT - 1)) .. '\148\1' .. bucket
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
      put = redis.call
      made[key] = '\147\2\146\0\147\64' .. marks .. '\146\0\148\1' .. bucket
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
