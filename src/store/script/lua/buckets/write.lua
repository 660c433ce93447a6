-- Writes what was taken.
--
-- An expiry is half of a write. So it is set for half as long again as it must be, and then stays until that does not
-- suffice any more. It never comes nearer: the state may be a debt under a longer rule. Where it is later than this rule sets
-- any, the key is asked, as another program may have written the value. A time that was given does not pass here: a minute more.
if full_at and failure == '' then
  local late, state, more = nil, nil, is_given and 60000 or 0
  full_at = math.max(full_at, last or 0)
  if beside then
    -- include value
    local bucket = { 1, at, level, from, refunded, last }
    beside[#beside + 1] = { parts = { bucket }, stop = math.max(full_at, now + 1, stop or 0) }
    stop, state, full_at = nil, value_of(beside, name, now, now - more * 1000)
  end
  if is_given then
    late, expires = string.format('%d', math.ceil((full_at - now) / 1000) + more), 0
  elseif full_at > expires * 1000000 or expires * 1000000 > full_at + 2 * span + 2000000
    and now + call('PTTL', name) * 1000 < full_at then
    -- Less two milliseconds, as the expiry that was read is rounded: a whole second stays the same one.
    expires = math.ceil(math.max(full_at + (full_at - now) / 2, (stop or 0) - 2000) / 1000000)
    -- Numbers take long to become text; many keys share this one.
    late = texts and texts[expires] or string.format('%d000', expires)
    if texts then
      texts[expires] = late
    end
  end
  local done
  if is_wide and not late and from == before then
    -- Time and level are all that changes.
    done = put('SETRANGE', name, '5', struct.pack('>I8Bi8', at, 0xd3, level))
  else
    if last and not state then
      state = cmsgpack.pack({ VERSION, { 1, at, level, from, refunded, last } })
    elseif not state then
      state = struct.pack('>I5I8Bi8I5I5', 0x92019401d3, at, 0xd3, level, 0xce00000000 + from,
        0xce00000000 + math.min(expires, 0xffffffff))
    end
    if is_wide then
      done = put('SETRANGE', name, '0', state)
    elseif bytes then
      done = put('SET', name, state)
    else
      done = put('SET', name, state, 'NX')
      if not done then
        healed = healed + 1
        done = put('SET', name, state)
      end
    end
  end
  -- Only the first write can fail for what the server is: full, or taking none. Then there is no other one.
  if type(done) == 'table' and done.err then
    failure = '\n' .. done.err
  else
    put = call
    if late then
      call(is_given and 'PEXPIRE' or 'PEXPIREAT', name, late)
    end
  end
end
