-- Decides equal calls about one token bucket that starts full: most calls that go out alone, and those of a client who is
-- asked for all the time. As `many.lua` does it for many keys; but with nothing in tables.
--
-- KEYS: where the state lies. ARGV[1]: a request, numbers in MessagePack one behind the other: the second, or -1 for the
-- server's clock; the gain of a microsecond, the price of a token, the burst and the tokens that it keeps free; the cost of a call, and how
-- many calls they are; and the microsecond of a second that was given.
--
-- Answers as `many.lua`.
-- include bounds
-- include buckets/form

local second, gain, price, burst, kept, cost, calls, micros = cmsgpack.unpack(ARGV[1])
local name, call, put = KEYS[1], redis.call, redis.pcall
-- include buckets/clock

local admitted, healed, texts, moved, failure, index = 0, 0, nil, '', '', 1
local bytes = redis.pcall('GET', name)
-- include readable
-- include buckets/read
-- include buckets/step
-- include buckets/write

return string.char(healed, admitted) .. found .. second .. ' ' .. micros .. moved .. failure
