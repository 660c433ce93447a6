-- Corrections of buckets. A charge occupies a span of its bucket's time axis: between when the bucket would have been full again before
-- it and after it. Positions are whole microseconds, and nanoseconds beyond them.

-- Returns the earliest end that a charge can have on the time axis, rounded down: that of a charge to a full bucket.
local function least_end(rule, n, charge)
  local gain, price = rule[n], charge.cost * rule[n + 1]
  local micros = div_floor(price, gain)
  return charge.at + micros, div_floor((price - micros * gain) * 1000, gain)
end

-- Corrects a charge to a bucket that was left at `level`, of `from` a microsecond, at `at`; without `at` the bucket is new. The charge
-- ends at `ends` and `nanos` on the time axis, or later. Without `ends`, no other charge lies behind it.
--
-- Returns when the bucket was left, the level then, and by how many microseconds that is more, rounded up. Nil if nothing changes.
local function corrected(rule, n, at, level, from, now, charge, ends, nanos)
  local gain, price = rule[n], rule[n + 1]
  local full, change = rule[n + 2] * price, (charge.cost - charge.actual) * price
  local left = at and rescaled(level, from, gain)
  -- Nothing was written since the charge, and the bucket has not filled up.
  local is_untouched = at == charge.at and now < rests_at(rule, n, at, level, from)
  if change > 0 then
    local elapsed = at and math.max(now, at) - at
    if not at or left <= full and filled(rule, n, level, from, elapsed) >= full then
      return nil
    end
    local is_bounded = ends and not is_untouched and left <= full
    local most = is_bounded and full or math.max(full, rule[n + 3] * price)
    local gained = math.min(change, most - left)
    local micros = div_ceil(gained, gain)
    if is_bounded then
      -- Refill has restored what lies before the last write.
      local ahead = (ends - at) * gain + div_floor(nanos * gain, 1000)
      if ahead < gained then
        gained, micros = ahead, ends - at + (nanos > 0 and 1 or 0)
      end
    end
    if micros > 0 then
      return at, left + gained, micros
    end
  elseif change < 0 then
    if not at then
      at, left = now, rule[n + 3] * price
    elseif not is_untouched then
      left = filled(rule, n, level, from, math.max(now, at) - at)
      at = math.max(now, at)
    end
    return at, math.max(left + change, 1 - LIMIT)
  end
end
