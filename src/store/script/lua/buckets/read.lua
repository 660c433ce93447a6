-- Reads the `bytes` under a key: when it was written, its level, and the gain `from` a microsecond in whose units that is;
-- `at` is nil where there is no bucket. Also the second at which it expires, whether all that lies at its width, and what
-- learns of it.
local at, level, from, expires, is_wide, found, full_at, span, before
-- The microseconds that were refunded to the key, if any, and the end of the last charge that was moved by it; and the states
-- of other kinds, if there are any.
local refunded, last, beside
-- When the bucket stops to matter, if its value is not at its width.
local stop
if bytes and #bytes == 32 then
  -- include buckets/wide
  found, before = bytes, from
end
if not is_wide then
  at, expires = nil, 0
  if bytes then
    -- A state that a settlement, another rule or another program has written.
    -- include token_bucket/kind
    -- include kinds
    -- include shape
    local whole, value = pcall(cmsgpack.unpack, bytes)
    whole = whole and is_state(value, bytes)
    if whole then
      local states = states_of(value)
      for n, state in ipairs(states) do
        if state.kind == KIND then
          local bucket = table.remove(states, n).parts[1]
          at, level, from, refunded, last = bucket[2], bucket[3], bucket[4], bucket[5], bucket[6]
          whole = is_bucket(bucket)
          stop = state.stop or not is_given and now + call('PTTL', name) * 1000
          break
        end
      end
      beside = states[1] and states
    end
    if not whole then
      at, refunded, last, stop, healed = nil, nil, nil, nil, healed + 1
    end
    if last then
      moved = string.format('%s %d %d %d', moved, index, refunded, last)
    end
  end
  found = at and struct.pack('>I5I8Bi8I5I5', 0x92019401d3, at, 0xd3, level, 0xce00000000 + from, 0xce00000000)
    or '\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0'
end
