-- Decides equal calls about one token bucket that starts full: most calls that go out alone, and those of a client who is
-- asked for all the time. As `many.lua` does it for many keys; but with nothing in tables.
--
-- KEYS: where the state lies. ARGV[1]: a request, numbers in MessagePack one behind the other: the second, or -1 for the
-- server's clock; the gain of a microsecond, the price of a token and the burst; the cost of a call, and how many calls
-- they are; and the microsecond of a second that was told.
--
-- Answers as `many.lua`.
-- include bounds
-- include buckets/form

local second, gain, price, burst, cost, calls, micros = cmsgpack.unpack(ARGV[1])
local name, call = KEYS[1], redis.call
local is_told, texts = second >= 0, nil
if not is_told then
  local time = call('TIME')
  second, micros = time[1], time[2]
end
local now = second * 1000000 + micros

local admitted, healed = 0, 0
-- The value of another type is an error, which is a table. Any other error is told.
local bytes = redis.pcall('GET', name)
if type(bytes) == 'table' and not string.find(bytes.err, '^WRONGTYPE') then
  return bytes
end
-- include buckets/read
-- include buckets/step
-- include buckets/write

return string.char(admitted, healed) .. found .. second .. ' ' .. micros
