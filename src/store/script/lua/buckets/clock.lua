-- The time of the call, or the server's.
local is_given = second >= 0
if not is_given then
  local time = call('TIME')
  second, micros = time[1], time[2]
end
local now = second * 1000000 + micros
