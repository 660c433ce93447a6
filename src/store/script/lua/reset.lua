-- Forgets a key. Answers `1`, or why the server does not take that.
local done = redis.pcall('DEL', KEYS[1])
return type(done) == 'table' and done.err or '1'
