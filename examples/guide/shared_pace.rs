//! Stay within the limits of others, from several processes.

// Copy from here.
use std::time::Duration;

use tokio::time::sleep;
use tollgate::{
    LeakyBucket, Limiter, Policy, Verdict,
    prelude::*,
    store::{BoxStore, StoreError},
};

type Store = BoxStore<LeakyBucket, StoreError>;

/// One for each process. `shared` is the store of all: `Redis::connect_lazy(url)?.boxed()`,
/// or `Memcached`.
fn paced(shared: Store) -> Limiter<LeakyBucket, Store> {
    let rule = LeakyBucket::per_second(10).queue(100);
    Limiter::new(Policy::new("partner-api"), rule, shared)
}

/// Waits for the next turn. A place whose caller leaves is not given to others.
async fn turn(limiter: &Limiter<LeakyBucket, Store>) -> Result<(), StoreError> {
    loop {
        let decision = limiter.check(Key::GLOBAL, Cost::ONE).await?;
        match decision.verdict() {
            Verdict::Allow => return Ok(()),
            Verdict::Delay(wait) => {
                sleep(wait).await;
                return Ok(());
            }
            // The queue is full.
            _ => sleep(decision.retry_after().unwrap_or(Duration::from_secs(1))).await,
        }
    }
}
// Copy to here.

#[cfg(test)]
mod tests {
    use futures_util::future::try_join_all;
    use tokio::time::Instant;
    use tollgate::{testing::Faulty, time::TokioClock};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn processes_share_one_queue_and_no_call_is_lost() {
        let store = LocalBuilder::new().clock(TokioClock::new()).build();
        let shared = Faulty::new(store);
        let processes = [paced(shared.clone().boxed()), paced(shared.boxed())];
        let start = Instant::now();
        let calls = (0..31).map(|call| turn(&processes[call % 2]));
        try_join_all(calls).await.unwrap();
        // One at once, and thirty in three seconds.
        assert_eq!(start.elapsed().as_secs(), 3);
        // More than the queue has places for.
        let calls = (0..150).map(|call| turn(&processes[call % 2]));
        try_join_all(calls).await.unwrap();
        let elapsed = start.elapsed();
        assert!(
            (17_900..18_200).contains(&elapsed.as_millis()),
            "{elapsed:?}"
        );
    }
}
