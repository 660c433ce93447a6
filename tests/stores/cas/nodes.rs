//! Nodes that count themselves.

use tollgate::{
    Policy, TokenBucket,
    store::driver::{CasStore, FleetStore},
    time::ManualClock,
};

use super::memory::{Memory, Ways, driver};

fn nodes(ways: Ways) -> CasStore<Memory, TokenBucket> {
    driver(Memory::new(ManualClock::default(), ways))
}

/// A node that is a minute ahead is counted with the others, and counts them, although each swap is
/// lost at first.
#[tokio::test(start_paused = true)]
async fn a_node_ahead_hides_nobody() {
    for found in [false, true] {
        let ways = Ways {
            found,
            loses: 3,
            ..Ways::default()
        };
        let store = nodes(ways);
        for round in 100..110 {
            for (n, ahead) in [0, 6, 0, 0].into_iter().enumerate() {
                let counting = store.count_node(&Policy::new("api"), round + ahead);
                let counts = counting.unwrap().await.unwrap();
                let least = if round == 100 { n as u64 + 1 } else { 4 };
                assert!((least..=4).contains(&counts.nodes()), "{round}: {counts:?}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_race_that_is_always_lost_ends() {
    let store = nodes(Ways::default());
    store
        .data()
        .always_loses
        .store(true, std::sync::atomic::Ordering::Relaxed);
    let counting = store.count_node(&Policy::new("api"), 7).unwrap();
    assert!(counting.await.unwrap_err().is_contended());
}
