-- What was told is its age, in whole microseconds. As of its own instant: what came later stands, and what was to be refilled since is.
at = math.max(now - charge.at, 0)
charge.at, charge.departs, charge.departs_nanos = at, at, 0
