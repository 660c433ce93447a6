//! One release corrects a charge of its own after the other one has written the state.

use super::in_both_orders;

/// Rules whose limit is 100 units, under which nothing comes back while a test runs.
const RULES: [&str; 12] = [
    "token-bucket 7/1d burst=100",
    "token-bucket 9/1d burst=100",
    "token-bucket 60/7d burst=100",
    "token-bucket 1000/1d burst=100",
    "token-bucket 999/30d burst=100",
    "token-bucket 7/1d burst=100 initial=100 keep=1d",
    "fixed-window 100/3650d",
    "fixed-window 100/1d from=first-call",
    "sliding-window 100/365d",
    "sliding-log 100/1d",
    "three-color 7/1d peak=100/1d",
    "token-bucket 7/1d burst=100 & sliding-log 100/1d",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_release_gives_back_the_other_one_admits() {
    let rules = RULES.map(|rule| (rule, ()));
    in_both_orders(rules, |rollout, place, first, _| async move {
        let [one, other] = [first, 1 - first].map(|n| &rollout.releases[n]);
        let charged = one.acquire(place, 40).await;
        let by_other = other.acquire(place, 60).await;
        assert!(charged.is_admitted && by_other.is_admitted, "{place:?}");
        assert_eq!(other.exhaust(place, 1).await.0, 0, "{place:?}");
        // It cost 25, in the end.
        one.settle(place, charged, 25).await;
        assert_eq!(other.exhaust(place, 1).await.0, 15, "{place:?}");
        assert_eq!(one.exhaust(place, 1).await.0, 0, "{place:?}");
        // All of it is given back, and taken by both in turn.
        other.settle(place, by_other, 0).await;
        let again = one.acquire(place, 20).await;
        assert!(again.is_admitted, "{place:?}");
        assert_eq!(other.exhaust(place, 8).await.0, 40, "{place:?}");
        assert_eq!(one.exhaust(place, 1).await.0, 0, "{place:?}");
        // It cost more than it was charged for: a debt, to both.
        one.settle(place, again, 25).await;
        assert_eq!(other.exhaust(place, 1).await.0, 0, "{place:?}");
        assert_eq!(one.exhaust(place, 1).await.0, 0, "{place:?}");
    })
    .await;
}
