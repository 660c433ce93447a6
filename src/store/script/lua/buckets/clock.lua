-- The time: what was told, or the server's.
local is_told = second >= 0
if not is_told then
  local time = call('TIME')
  second, micros = time[1], time[2]
end
local now = second * 1000000 + micros
