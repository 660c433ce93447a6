//! Wrappers inside of each other.

use std::time::Duration;

use tollgate::{algorithm::AnyRule, store::Store};

use super::{
    meter::Meter,
    play,
    wrapper::{ALL, Wrapper, above},
};
use crate::synced::nodes::Fleet;

const LIMIT: u64 = 12;
const PAUSE: Duration = Duration::from_millis(150);

/// Each wrapper inside of each other one: the order is refused when a layer is built, or it keeps
/// to the limit.
#[tokio::test(start_paused = true)]
async fn wrappers_stand_inside_each_other_or_are_refused() {
    let rule: AnyRule = "token-bucket 12/1h".parse().unwrap();
    let all = || {
        ALL.into_iter()
            .filter(|one| !matches!(one, Wrapper::Counted(_)))
    };
    for outer in all() {
        for inner in all() {
            let fleet = Fleet::new();
            let nodes = [1, 2].map(|seed| outer.node_around(inner, &fleet, 2, seed));
            let is_ahead = matches!(outer, Wrapper::Leased(_) | Wrapper::Synced(_));
            let has_blocks = inner.is_of_blocks();
            let fits = nodes[0].fits(&rule).map_err(|error| error.to_string());
            assert_eq!(
                fits.is_ok(),
                !(is_ahead && has_blocks),
                "{outer:?} around {inner:?}: {fits:?}"
            );
            // Also if nobody asked whether it fits.
            let admitted = play(&nodes, &rule, LIMIT, PAUSE, 1).await.len() as u64;
            let meter = Meter::Total(LIMIT);
            let [outside, inside] = [outer, inner].map(|one| above(&[one; 2], &rule, meter).0);
            let most = LIMIT + outside.max(inside);
            assert!(
                (LIMIT - 2..=most).contains(&admitted),
                "{outer:?} around {inner:?}: {admitted}"
            );
        }
    }
}
