-- The version of states, the least number that is beyond them, and the greatest gain of a microsecond.
local VERSION, LIMIT, MOST_GAIN = 1, 2 ^ 53, 2 ^ 26

