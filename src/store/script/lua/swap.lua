-- Replaces one state if it is as it was.
--
-- KEYS[1]: where it lies. ARGV[1], in MessagePack: the bytes that must be there, false for none, true for
-- whatever; the bytes that shall be there, false for none; and for how many milliseconds.
local request = cmsgpack.unpack(ARGV[1])
local from, to, keep = request[1], request[2], request[3]
if from ~= true then
  local bytes = redis.pcall('GET', KEYS[1])
  -- include readable
  if bytes ~= from then
    return '0'
  end
end
if to then
  redis.call('SET', KEYS[1], to, 'PX', keep)
else
  redis.call('DEL', KEYS[1])
end
return '1'
