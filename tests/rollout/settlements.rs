//! One release settles its charge after the other release has written the state.

use super::in_both_orders;

/// Rules with a limit of 100 units, which refill nothing while a test runs.
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
async fn units_refunded_by_one_release_are_admitted_by_the_other() {
    let rules = RULES.map(|rule| (rule, ()));
    in_both_orders(rules, |rollout, target, first, _| async move {
        let [one, other] = [first, 1 - first].map(|n| &rollout.releases[n]);
        let charged = one.acquire(target, 40).await;
        let by_other = other.acquire(target, 60).await;
        assert!(charged.is_admitted && by_other.is_admitted, "{target:?}");
        assert_eq!(other.exhaust(target, 1).await.0, 0, "{target:?}");
        // The actual cost is 25.
        one.settle(target, charged, 25).await;
        assert_eq!(other.exhaust(target, 1).await.0, 15, "{target:?}");
        assert_eq!(one.exhaust(target, 1).await.0, 0, "{target:?}");
        // The whole charge is refunded, and both releases spend it in turn.
        other.settle(target, by_other, 0).await;
        let again = one.acquire(target, 20).await;
        assert!(again.is_admitted, "{target:?}");
        assert_eq!(other.exhaust(target, 8).await.0, 40, "{target:?}");
        assert_eq!(one.exhaust(target, 1).await.0, 0, "{target:?}");
        // The actual cost exceeds the charge: a debt, in both releases.
        one.settle(target, again, 25).await;
        assert_eq!(other.exhaust(target, 1).await.0, 0, "{target:?}");
        assert_eq!(one.exhaust(target, 1).await.0, 0, "{target:?}");
    })
    .await;
}
