//! Nodes that count themselves.

use tollgate::{
    Policy, TokenBucket,
    store::{Optimistic, Store},
    time::ManualClock,
};

use super::{
    counted_nodes::counts_are_those_of_the_periods,
    memory::{Memory, Ways, driver},
};

fn nodes(ways: Ways) -> Optimistic<Memory, TokenBucket, ManualClock> {
    driver(Memory::new(ManualClock::default(), ways))
}

#[tokio::test(start_paused = true)]
async fn counts_are_those_of_the_periods_by_swaps() {
    for found in [false, true] {
        let ways = Ways {
            found,
            loses: 3,
            ..Ways::default()
        };
        counts_are_those_of_the_periods(&nodes(ways)).await;
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
