//! A server that pauses, behind what the operators' page recommends: only calls fail whose deadline
//! ends within a pause.

use std::time::Duration;

use tokio::time::Instant;
use tollgate::{
    TokenBucket,
    store::{
        CircuitBreakerConfig, CircuitState, Store, StoreError, StoreExt,
        driver::{Check, Decisions},
    },
    time::TokioClock,
};

use crate::fakes::{Asked, Later, OnlyAsked};

/// As on the operators' page.
const DEADLINE: Duration = Duration::from_millis(100);
const EVERY: Duration = Duration::from_secs(1);

/// Answers at once, except at the beginning of each second.
#[derive(Clone, Copy)]
struct Pausing {
    begun: Instant,
    pause: Duration,
}

impl Pausing {
    fn store(self) -> impl Store<TokenBucket, Error = StoreError, Answer = Later<Decisions>> {
        OnlyAsked(move || {
            let pause = self.rest_of_pause();
            async move {
                tokio::time::sleep(pause).await;
                Ok(Decisions::default())
            }
        })
    }

    fn rest_of_pause(&self) -> Duration {
        let millis = self.begun.elapsed().as_millis() % EVERY.as_millis();
        self.pause
            .saturating_sub(Duration::from_millis(millis as u64))
    }
}

/// Calls each `gap` for some seconds, without waiting for answers. Returns the calls, those that
/// failed, those whose deadline ended within a pause, and how often the breaker opened.
async fn traffic(pause: Duration, gap: Duration) -> (u64, u64, u64, u64) {
    let server = Pausing {
        begun: Instant::now(),
        pause,
    };
    let store = server.store().timeout(DEADLINE);
    let store = store.circuit_breaker(CircuitBreakerConfig::new().clock(TokioClock::default()));
    let asked = Asked::of(TokenBucket::per_hour(1));
    let (mut calls, mut failed, mut hopeless) = (tokio::task::JoinSet::new(), 0, 0);
    let mut count = 0;
    while server.begun.elapsed() < 10 * EVERY {
        hopeless += u64::from(server.rest_of_pause() > DEADLINE);
        count += 1;
        match store.acquire(&[asked.ask("a", 1)]) {
            Check::Ready(result) => failed += u64::from(result.is_err()),
            Check::Pending(call) => drop(calls.spawn(call)),
        }
        tokio::time::sleep(gap).await;
    }
    for result in calls.join_all().await {
        failed += u64::from(result.is_err());
    }
    (count, failed, hopeless, store.opened())
}

#[tokio::test(start_paused = true)]
async fn only_calls_fail_whose_deadline_ends_within_a_pause() {
    for gap in [1, 3, 10, 50].map(Duration::from_millis) {
        let (calls, failed, hopeless, opened) = traffic(Duration::from_millis(200), gap).await;
        assert_eq!(opened, 0, "{gap:?}");
        assert_eq!(failed, hopeless, "{gap:?} of {calls}");
        assert!(
            failed > 0 && failed < calls / 8,
            "{gap:?}: {failed} of {calls}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_server_is_noticed_after_as_many_deadlines_as_failures() {
    let server = Pausing {
        begun: Instant::now(),
        pause: EVERY,
    };
    let store = server.store().timeout(DEADLINE);
    let store = store.circuit_breaker(CircuitBreakerConfig::new().clock(TokioClock::default()));
    let asked = Asked::of(TokenBucket::per_hour(1));
    let mut calls = tokio::task::JoinSet::new();
    while store.state() == CircuitState::Closed {
        if let Check::Pending(call) = store.acquire(&[asked.ask("a", 1)]) {
            calls.spawn(call);
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(server.begun.elapsed() < EVERY);
    }
    let noticed = server.begun.elapsed();
    assert!(
        (5 * DEADLINE..6 * DEADLINE).contains(&noticed),
        "{noticed:?}"
    );
}
