-- Takes `calls` of a `cost` each from what was read, as many as it holds above what the rule keeps free. If that is any, it is what is to be written, and
-- `full_at` the time from which on it says no more, `span` after a rule's bucket was empty.
local full, each, floor = burst * price, cost * price, kept * price
local since, left = now, full
if at then
  left = level
  if from ~= gain then
    local rest = left % from
    local more = rest * gain
    left = math.max(-LIMIT, (left - rest) / from * gain + (more - more % from) / from)
  end
  if at < now then
    left = left + (now - at) * gain
  else
    since = at
  end
  if left > full then
    left = full
  end
end
if cost <= burst and left - floor >= each then
  local passed = 1
  if calls > 1 then
    passed = (left - floor - (left - floor) % each) / each
    if passed > calls then
      passed = calls
    end
  end
  admitted = admitted + passed
  -- Once all charges have passed, nobody asks what was refunded.
  if last and left == full and last <= since then
    refunded, last = nil, nil
  end
  at, level, from = since, left - passed * each, gain
  local missing = full - level + gain - 1
  full_at, span = math.max(full_at or 0, at + (missing - missing % gain) / gain), full / gain
end
