-- The request that `driver.lua` describes, and the beginning of its answer. It stands before all functions, because a program that ends before it
-- creates them takes a fraction of the time.
-- include keys
local request = cmsgpack.unpack(ARGV[1])
local now, rules, calls, logs = unpack(request, 1, 4)
if now == 0 then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end

-- A given time does not pass on the server: keys are kept for a minute longer.
local more = request[1] == 0 and 0 or 60000

local known, admitted, answer = {}, {}, { now, false, 0, 0, false }
