-- Spends what is granted, which the other side computes, too: the answer counts the units, up to 2^32 each, beside the calls.
cost = granted(rules[rule], parts, cost, calls[n + 3], state.logs)
counts = counts + cost % 2 ^ 32
