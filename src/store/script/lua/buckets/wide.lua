-- Reads a value of 32 bytes.
local head, mark
head, at, mark, level, from, expires = struct.unpack('>I5I8Bi8I5I5', bytes)
from, expires = from - 0xce00000000, expires - 0xce00000000
is_wide = head == 0x92019401d3 and mark == 0xd3 and at < LIMIT and level > -LIMIT and level < LIMIT
  and from > 0 and from <= MOST_GAIN and expires >= 0 and expires < 0x100000000
