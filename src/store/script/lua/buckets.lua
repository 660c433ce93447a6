-- Decides calls about token buckets that start full, each call about one key. These are the commonest requests by far,
-- so nothing is built for a key but the bytes that are written; the driver would decide the same.
--
-- KEYS: where the states lie. ARGV[1]: a request, numbers in MessagePack one behind the other,
--   now, the place of the first run, rules, runs
-- with `now` in microseconds, or 0 for the server's clock; of each rule the gain of a microsecond, the price of a token
-- and the burst; and of each run of equal calls the key, the place of the rule, the cost, and how many calls they are. Runs
-- on one key are neighbours.
--
-- Answers the time in 8 bytes, in 4 each the number of calls that were admitted and of states that could not be read,
-- and for each key the state that was found, as long as all states that are written here, or zeros.

-- A state is what the driver writes, { VERSION, { TOKEN_BUCKET, written at, level, gain } }, but each number always takes
-- the same width, so that they are read without looking what there is; and behind it stands the second at which it
-- expires. Each number has its mark in front, which is written as a part of its neighbour where that is short.
local FORM, LENGTH = '>I5i8Bi8I5I5', 32
local HEAD, MARK, SHORT, SHORTS = 0x92019401d3, 0xd3, 0xce00000000, 0x100000000
local TOKEN_BUCKET = 1
local NOTHING = '\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0'

local call, read, write = redis.call, struct.unpack, struct.pack
local plan = { cmsgpack.unpack(ARGV[1]) }
local now, run = plan[1], plan[2]
if now == 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end

local admitted, healed = 0, 0
-- What is of another type is missing here, and found out when it is written.
local found = call('MGET', unpack(KEYS))
local texts = {}
local key = plan[run]
while key do
  local name, bytes = KEYS[key], found[key]
  local at, level, from
  local expires, is_wide = 0, false
  if not bytes then
    found[key] = NOTHING
  else
    if #bytes == LENGTH then
      local head, mark
      head, at, mark, level, from, expires = read(FORM, bytes)
      from, expires = from - SHORT, expires - SHORT
      is_wide = head == HEAD and mark == MARK and at >= 0 and at < LIMIT and level > -LIMIT and level < LIMIT
        and from > 0 and from <= MOST_GAIN and expires >= 0 and expires < SHORTS
    end
    if not is_wide then
      -- What a settlement, another rule or another program has written.
      local whole, state = pcall(cmsgpack.unpack, bytes)
      local part
      whole = whole and is_state(state, bytes)
      if whole then
        part = state[2]
      end
      at, expires = nil, 0
      if part and part[1] == TOKEN_BUCKET then
        at, level, from = part[2], part[3], part[4]
        whole = #part == 4 and is_natural(at) and has_level(part, 3)
      end
      if not whole then
        healed = healed + 1
        at = nil
      end
      found[key] = at and write(FORM, HEAD, at, MARK, level, SHORT + from, SHORT) or NOTHING
    end
  end

  local full_at, span
  repeat
    local rule, cost, calls = plan[run + 1], plan[run + 2], plan[run + 3]
    local gain, price, burst = plan[rule], plan[rule + 1], plan[rule + 2]
    local full = burst * price
    local since, left = now, full
    if at then
      left = level
      if from ~= gain then
        local rest = left % from
        local more = rest * gain
        left = math.max(-LIMIT, (left - rest) / from * gain + (more - more % from) / from)
      end
      if at < now then
        left = left + (now - at) * gain
      else
        since = at
      end
      if left > full then
        left = full
      end
    end
    if cost <= burst and left >= cost * price then
      local each = cost * price
      local passed = (left - left % each) / each
      if passed > calls then
        passed = calls
      end
      admitted = admitted + passed
      at, level, from = since, left - passed * each, gain
      local missing = full - level + gain - 1
      full_at, span = at + (missing - missing % gain) / gain, full / gain
    end
    run = run + 4
  until plan[run] ~= key

  key = plan[run]
  if full_at then
    -- An expiry is half of a write. So it is set for half as long again as it must be, and then stays until that does not
    -- suffice any more; or is later than this rule sets any. A time that was told does not pass here: a minute more.
    local late
    if plan[1] ~= 0 then
      late, expires = string.format('%d', math.ceil((full_at - now) / 1000) + 60000), 0
    elseif full_at > expires * 1000000 or expires * 1000000 > full_at + 2 * span + 2000000 then
      expires = math.ceil((full_at + (full_at - now) / 2) / 1000000)
      -- Numbers take long to become text; many keys share this one.
      late = texts[expires] or string.format('%d000', expires)
      if key then
        texts[expires] = late
      end
    end
    local state = write(FORM, HEAD, at, MARK, level, SHORT + from, SHORT + math.min(expires, SHORTS - 1))
    if is_wide then
      call('SETRANGE', name, '0', state)
    elseif bytes then
      call('SET', name, state)
    elseif not call('SET', name, state, 'NX') then
      healed = healed + 1
      call('SET', name, state)
    end
    if late then
      call(plan[1] == 0 and 'PEXPIREAT' or 'PEXPIRE', name, late)
    end
  end
end

return write('>I8I4I4c0', now, admitted, healed, table.concat(found))
