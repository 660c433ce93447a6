-- The value of another type is an error, which is a table. Any other error is returned.
if type(bytes) == 'table' and not string.find(bytes.err, '^WRONGTYPE') then
  return bytes
end
