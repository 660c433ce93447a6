-- A token bucket as the instant at which it will be full again.
-- ARGV[1]: microseconds until the next token. ARGV[2]: tokens at once.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local full_at = tonumber(redis.call('GET', KEYS[1])) or now
local next = math.max(full_at, now) + ARGV[1]
local missing = next - now
local room = ARGV[1] * ARGV[2] - missing
if room < 0 then
  return { 0, -room }
end
redis.call('SET', KEYS[1], next, 'PX', math.ceil(missing / 1000))
return { 1, math.floor(room / ARGV[1]) }
