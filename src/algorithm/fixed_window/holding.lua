-- Finds `start` and `stop` of the window that holds `at`, if one begins at `anchor`.
local since = at >= anchor and fmod(at - anchor, period) or period - (anchor - at)
local start, stop = math.max(0, at - since), math.min(at - since + period, LAST)
