-- Forgets keys. Answers `1`, or why the server does not take that.
local done = redis.pcall('DEL', unpack(KEYS))
return type(done) == 'table' and done.err or '1'
