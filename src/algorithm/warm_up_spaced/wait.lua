-- The time that later calls wait for a call at this `warmth` that takes `high` at the full rate.
local wait = high
if warmth < rule[11] then
  -- From here the call goes down to there, above the threshold: the area under the line.
  local from = rule[11] - warmth
  local to = math.max(0, from - wait)
  local area, part = mul_div(from - to, rule[12] * (from + to), rule[13])
  wait = wait + area + part
end
