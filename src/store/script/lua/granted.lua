-- Spends the grant, which the other side computes, too. The answer counts the units, up to 2^32 each, in addition to the calls.
cost = granted(rules[rule], parts, cost, calls[n + 3], state.logs)
counts = counts + cost % 2 ^ 32
