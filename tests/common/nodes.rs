//! Counted nodes, against counts that are kept for each period.

use std::{collections::HashMap, fmt::Debug};

use tollgate::{
    Policy, TokenBucket,
    store::{NodeCounts, Store},
};

/// Nodes count themselves in periods that come by small and large steps. The clocks of some are behind.
pub(crate) async fn counts_are_those_of_the_periods<S>(store: &S)
where
    S: Store<TokenBucket, Error: Debug>,
{
    let policy = Policy::new("walk");
    let mut counted: HashMap<u64, u64> = HashMap::new();
    let (mut newest, mut seed) = (1000_u64, 7_u64);
    for _ in 0..400 {
        // A linear congruential generator, by the constants of MMIX.
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let period = match seed >> 60 {
            0..8 => newest,
            8..11 => newest + 1,
            11 => newest + 2,
            12 => newest + 1000,
            13..15 => newest - 1,
            _ => newest - 2,
        };
        newest = newest.max(period);
        *counted.entry(period).or_default() += 1;
        let counting = store.count_node(&policy, period).unwrap();
        let NodeCounts { current, previous } = counting.await.unwrap();
        let in_period = |period| counted.get(&period).copied().unwrap_or(0);
        if period + 1 >= newest {
            let expected = in_period(newest).max(in_period(newest - 1));
            let counts = NodeCounts { current, previous };
            assert_eq!(counts.nodes(), expected, "{period} of {newest}: {counts:?}");
        }
        if period == newest {
            assert_eq!(
                [current, previous],
                [in_period(period), in_period(period - 1)]
            );
        }
    }
}
