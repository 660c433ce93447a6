-- Replaces one state if it is as it was.
--
-- KEYS[1]: where it lies. ARGV[1], in MessagePack: the bytes that must be there, false for none, true for
-- whatever; the bytes that shall be there, false for none; and for how many milliseconds.
local request = cmsgpack.unpack(ARGV[1])
local from, to, keep = request[1], request[2], request[3]
if from ~= true then
  local there = redis.pcall('GET', KEYS[1])
  if there ~= from then
    -- The value of another type is an error, which is a table. Any other error is told.
    return type(there) == 'table' and not string.find(there.err, '^WRONGTYPE') and there or '0'
  end
end
if to then
  redis.call('SET', KEYS[1], to, 'PX', keep)
else
  redis.call('DEL', KEYS[1])
end
return '1'
