-- The time of the charge is its age, in whole microseconds. It is charged at its own instant: later charges stand, and the refill since then counts.
at = math.max(now - charge.at, 0)
charge.at, charge.departs, charge.departs_nanos = at, at, 0
