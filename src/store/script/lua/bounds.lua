-- The forms of states, of one kind and of several; the least number that is beyond them, and the greatest gain of a
-- microsecond.
local VERSION, SEVERAL, LIMIT, MOST_GAIN = 1, 2, 2 ^ 53, 2 ^ 26
