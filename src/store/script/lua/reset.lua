-- Forgets keys. Answers `1`, or why the server does not take that.
-- include keys
for _, name in ipairs(KEYS) do
  local done = redis.pcall('DEL', name)
  if type(done) == 'table' and done.err then
    return done.err
  end
end
return '1'
