//! Clients refused by one release pass in the other one, after `retry_after`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::sleep;

use super::{bounds::CASES, exact::assert_agree, in_both_orders};

/// Longer waits are compared, not waited for.
const LONGEST: Duration = Duration::from_secs(3);
/// Allows for the difference of both processes' clocks.
const LATER: Duration = Duration::from_millis(5);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_passes_the_other_release_after_retry_after() {
    let rules = CASES.map(|(rule, cost, _)| (rule, cost));
    in_both_orders(rules, |rollout, target, first, cost| async move {
        // One release admits the whole limit. The other refuses until `retry_after` is over.
        let mut turn = first;
        for _ in 0..3 {
            let [one, other] = [turn, 1 - turn].map(|n| &rollout.releases[n]);
            let (_, refused) = one.exhaust(target, cost).await;
            let early = other.acquire(target, cost).await;
            if early.at + LATER.as_nanos() as u64 >= refused.until() {
                // The wait is over already.
                continue;
            }
            let what = format!("{target:?}: {refused:?} by `{}`", one.name);
            assert!(!early.is_admitted, "{what}, {early:?} by `{}`", other.name);
            if refused.wait > LONGEST.as_nanos() as u64 {
                assert_agree(&rollout.releases, target, cost, 50).await;
                return;
            }
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            sleep(Duration::from_nanos(refused.until()).saturating_sub(now) + LATER).await;
            let later = other.acquire(target, cost).await;
            assert!(later.is_admitted, "{what}, {later:?} by `{}`", other.name);
            turn = 1 - turn;
        }
    })
    .await;
}
