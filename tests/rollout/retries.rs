//! Clients that one release refused come back to the other one, when `retry_after` is over.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::sleep;

use super::{bounds::CASES, exact::agree, in_both_orders};

/// Longer waits are compared, not waited for.
const LONGEST: Duration = Duration::from_secs(3);
/// For the clocks of both processes.
const LATER: Duration = Duration::from_millis(5);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_passes_the_other_release_after_retry_after() {
    let rules = CASES.map(|(rule, cost, _)| (rule, cost));
    in_both_orders(rules, |rollout, place, first, cost| async move {
        // One release admits all that there is. The other one refuses until `retry_after` is over.
        let mut turn = first;
        for _ in 0..3 {
            let [one, other] = [turn, 1 - turn].map(|n| &rollout.releases[n]);
            let (_, refused) = one.exhaust(place, cost).await;
            let early = other.acquire(place, cost).await;
            if early.at + LATER.as_nanos() as u64 >= refused.until() {
                // It is over already.
                continue;
            }
            let what = format!("{place:?}: {refused:?} by `{}`", one.name);
            assert!(!early.is_admitted, "{what}, {early:?} by `{}`", other.name);
            if refused.wait > LONGEST.as_nanos() as u64 {
                agree(&rollout.releases, place, cost, 50).await;
                return;
            }
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            sleep(Duration::from_nanos(refused.until()).saturating_sub(now) + LATER).await;
            let later = other.acquire(place, cost).await;
            assert!(later.is_admitted, "{what}, {later:?} by `{}`", other.name);
            turn = 1 - turn;
        }
    })
    .await;
}
