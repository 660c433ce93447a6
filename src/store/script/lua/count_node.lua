-- Counts a node in a period.
--
-- KEYS[1]: where the counts lie. ARGV[1], in MessagePack: the number of the period, how many milliseconds the counts are kept, and the seconds
-- of a period. The value is the number of the last period, its nodes, and those of the period before.
local period, keep, seconds = unpack(cmsgpack.unpack(ARGV[1]))
-- No period is later than the one after this server's: a node of an earlier release, whose clock is ahead, would hide all others.
local latest = math.floor(redis.call('TIME')[1] / seconds) + 1
period = math.min(period, latest)
local value = redis.call('GET', KEYS[1]) or ''
local last, current, previous = string.match(value, '^(%d+) (%d+) (%d+)$')
last, current, previous = tonumber(last), tonumber(current), tonumber(previous)
if last == period then
  current = current + 1
elseif last == period - 1 then
  last, current, previous = period, 1, current
elseif last and last > period and last <= latest then
  -- The clock of this node is behind.
  if last == period + 1 then
    previous = previous + 1
  end
else
  last, current, previous = period, 1, 0
end
redis.call('SET', KEYS[1], string.format('%.0f %.0f %.0f', last, current, previous), 'PX', keep)
return cmsgpack.pack({ current, previous })
