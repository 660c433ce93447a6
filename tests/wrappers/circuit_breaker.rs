//! `.circuit_breaker(…)`: rejects calls to a store that does not answer.

use std::{
    collections::BTreeSet,
    future::{Future, IntoFuture},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Barrier},
    task::{Context, Waker},
    time::Duration,
};

use tokio::time::{Instant, sleep};
use tollgate::{
    Cost, InFlight, Limiter, Policy, Timestamp, TokenBucket,
    key::Key,
    store::{
        Backend, CircuitBreaker, CircuitBreakerConfig, CircuitState, Store, StoreError, StoreExt,
        driver::{Ask, Check, Decisions, Never, Renewed, Settlement},
    },
    time::{Clock, ManualClock, SystemClock},
};

use crate::fakes::{Asked, Fault, Kind, Op, Remote};

type Broken = CircuitBreaker<Remote<TokenBucket, ManualClock>>;

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(10);

struct Set {
    remote: Remote<TokenBucket, ManualClock>,
    clock: ManualClock,
    store: Broken,
    asked: Asked,
}

fn set(failures: u32) -> Set {
    set_with(|settings| settings.failures(failures).seed(7))
}

fn set_with(change: impl FnOnce(CircuitBreakerConfig) -> CircuitBreakerConfig) -> Set {
    let clock = ManualClock::default();
    let remote = Remote::with_clock(clock.clone());
    let settings = change(CircuitBreakerConfig::new().open_for(FIRST, LONGEST));
    let store = remote
        .clone()
        .circuit_breaker(settings.clock(clock.clone()));
    Set {
        remote,
        clock,
        store,
        asked: Asked::of(TokenBucket::per_hour(1000)),
    }
}

impl Set {
    async fn call(&self) -> Result<(), StoreError> {
        self.asked.acquire(&self.store, "a", 1).await.map(drop)
    }

    /// Makes a call that must reach the store.
    async fn call_with(&self, fault: Fault) -> Result<(), StoreError> {
        self.remote.plan([fault]);
        let before = self.remote.calls().len();
        let result = self.call().await;
        assert_eq!(
            self.remote.calls().len(),
            before + 1,
            "the call did not reach the store"
        );
        result
    }

    async fn open(&self) {
        self.remote.usually(Fault::Fails(Kind::Timeout));
        for _ in 0..100 {
            if self.store.state() == CircuitState::Closed {
                assert!(self.call().await.is_err());
            }
        }
        self.remote.usually(Fault::None);
        assert_eq!(self.store.state(), CircuitState::Open);
    }

    /// Advances the clock until the breaker is half open. Returns the length of the pause, to the
    /// nanosecond.
    fn wait_until_half_open(&self) -> Duration {
        let begun = self.clock.now();
        let is_open_after = |nanos: u64| {
            self.clock
                .set(begun.saturating_add(Duration::from_nanos(nanos)));
            self.store.state() == CircuitState::Open
        };
        let (mut open, mut half_open) = (0, 2 * LONGEST.as_nanos() as u64);
        assert!(is_open_after(open) && !is_open_after(half_open));
        while half_open - open > 1 {
            let middle = open + (half_open - open) / 2;
            if is_open_after(middle) {
                open = middle;
            } else {
                half_open = middle;
            }
        }
        assert!(!is_open_after(half_open));
        assert_eq!(self.store.state(), CircuitState::HalfOpen);
        Duration::from_nanos(half_open)
    }
}

#[tokio::test]
async fn it_opens_after_a_number_of_consecutive_failures_and_rejects_calls() {
    for kind in Kind::FAILURES {
        let set = set(3);
        for fault in [Fault::Fails(kind), Fault::FailsAtOnce(kind)] {
            assert!(set.call_with(fault).await.is_err());
        }
        assert_eq!(set.store.state(), CircuitState::Closed);
        // An answer resets the count.
        assert!(set.call_with(Fault::None).await.is_ok());
        for _ in 0..3 {
            assert_eq!(set.store.state(), CircuitState::Closed);
            assert!(set.call_with(Fault::Fails(kind)).await.is_err());
        }
        assert_eq!(set.store.state(), CircuitState::Open);
        let asked = set.remote.calls().len();
        for _ in 0..10 {
            let error = set.call().await.unwrap_err();
            assert!(error.is_unavailable());
            assert!(
                error.to_string().contains("circuit breaker is open"),
                "{error}"
            );
        }
        assert_eq!(set.remote.calls().len(), asked);
        let store = set.store.clone();
        assert_eq!(
            (store.opened(), store.rejected(), store.probes()),
            (1, 10, 0)
        );
    }
}

#[tokio::test]
async fn contention_counts_as_an_answer() {
    let set = set(2);
    for _ in 0..5 {
        let failed = set.call_with(Fault::Fails(Kind::Timeout)).await;
        assert!(failed.unwrap_err().is_timeout());
        let contended = set.call_with(Fault::Fails(Kind::Contended)).await;
        assert!(contended.unwrap_err().is_contended());
    }
    assert_eq!(set.store.state(), CircuitState::Closed);
    set.open().await;
    set.wait_until_half_open();
    assert!(set.call_with(Fault::Fails(Kind::Contended)).await.is_err());
    assert_eq!(set.store.state(), CircuitState::Closed);
}

/// An error of one call alone, at once or later, is no evidence about the server.
#[tokio::test]
async fn an_error_of_one_call_counts_neither_as_answer_nor_as_failure() {
    let down = Fault::Fails(Kind::Unavailable);
    for misfit in [Fault::Fails, Fault::FailsAtOnce].map(|when| when(Kind::Unsupported)) {
        let set = set(2);
        for _ in 0..5 {
            assert!(set.call_with(misfit).await.unwrap_err().is_unsupported());
        }
        assert_eq!(set.store.state(), CircuitState::Closed);
        for fault in [down, misfit, down] {
            assert_eq!(set.store.state(), CircuitState::Closed);
            assert!(set.call_with(fault).await.is_err());
        }
        assert_eq!(set.store.state(), CircuitState::Open);
        set.wait_until_half_open();
        // Its probe slot goes to the next call.
        for probes in 1..4 {
            assert!(set.call_with(misfit).await.unwrap_err().is_unsupported());
            assert_eq!(set.store.state(), CircuitState::HalfOpen);
            assert_eq!(set.store.probes(), probes);
        }
        assert!(set.call_with(Fault::None).await.is_ok());
        assert_eq!(set.store.state(), CircuitState::Closed);
    }
}

#[tokio::test]
async fn a_refusal_counts_as_an_answer() {
    let mut set = set(1);
    set.asked = Asked::of(TokenBucket::per_hour(1));
    for _ in 0..10 {
        assert!(set.call_with(Fault::None).await.is_ok());
    }
    assert_eq!(
        (set.store.state(), set.store.opened()),
        (CircuitState::Closed, 0)
    );
}

/// `look`, `settle` and `reset` can open the breaker, are rejected by it, and can be its probes.
#[tokio::test]
async fn all_operations_can_open_the_breaker_and_probe() {
    for op in [Op::Look, Op::Settle, Op::Reset] {
        let set = set(2);
        let decision = set.asked.acquire(&set.store, "a", 1).await.unwrap();
        let key = Key::from("a");
        let call = async || match op {
            Op::Settle => {
                let settlement = set.asked.settlement("a", &decision, 0);
                set.store.settle(vec![settlement]).await.is_ok()
            }
            Op::Reset => {
                let check = Store::<TokenBucket>::reset(&set.store, &set.asked.policy, &key);
                check.await.is_ok()
            }
            _ => set.asked.look(&set.store, "a").await.is_ok(),
        };
        set.remote.usually(Fault::Fails(Kind::Other));
        for _ in 0..2 {
            assert!(!call().await);
        }
        assert_eq!(set.store.state(), CircuitState::Open);
        assert!(!call().await);
        assert_eq!((set.remote.count(op), set.store.rejected()), (2, 1));
        set.remote.usually(Fault::None);
        set.wait_until_half_open();
        assert!(call().await);
        assert_eq!(
            (set.store.state(), set.store.probes()),
            (CircuitState::Closed, 1)
        );
    }
}

#[tokio::test]
async fn pauses_are_drawn_from_their_upper_half_and_double_up_to_the_longest() {
    let set = set(1);
    set.open().await;
    let mut longest = FIRST;
    for _ in 0..8 {
        let pause = set.wait_until_half_open();
        assert!(
            pause >= longest / 2 && pause <= longest,
            "{pause:?} of {longest:?}"
        );
        let failed = set.call_with(Fault::Fails(Kind::Timeout)).await;
        assert!(failed.is_err());
        assert_eq!(set.store.state(), CircuitState::Open);
        longest = (longest * 2).min(LONGEST);
    }
    assert_eq!(longest, LONGEST);
    assert_eq!((set.store.opened(), set.store.probes()), (9, 8));
    // After an answer, pauses start at the first length again.
    set.wait_until_half_open();
    assert!(set.call_with(Fault::None).await.is_ok());
    assert_eq!(set.store.state(), CircuitState::Closed);
    set.open().await;
    assert!(set.wait_until_half_open() <= FIRST);
}

#[tokio::test]
async fn pauses_differ_between_breakers_and_are_determined_by_the_seed() {
    let mut pauses = BTreeSet::new();
    for seed in 0..50 {
        let pause = async || {
            let set = set_with(|settings| settings.failures(1).seed(seed));
            set.open().await;
            set.wait_until_half_open()
        };
        let drawn = pause().await;
        assert_eq!(drawn, pause().await);
        pauses.insert(drawn);
    }
    assert_eq!(pauses.len(), 50);
    // They spread over the half second, roughly evenly.
    let early = pauses.iter().filter(|pause| **pause < FIRST * 3 / 4);
    assert!((10..=40).contains(&early.count()), "{pauses:?}");
    let unseeded = async || {
        let set = set_with(|settings| settings.failures(1));
        set.open().await;
        set.wait_until_half_open()
    };
    assert_ne!(unseeded().await, unseeded().await);
}

/// Exactly one of 64 tasks reaches the store, whichever is first, in every repetition.
#[test]
fn one_of_many_tasks_probes() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let set = Arc::new(set(1));
        for round in 0..20_u64 {
            set.open().await;
            set.wait_until_half_open();
            set.remote.usually(Fault::Slow(Duration::from_millis(5)));
            let before = set.remote.count(Op::Acquire);
            let barrier = Arc::new(tokio::sync::Barrier::new(64));
            let tasks: Vec<_> = (0..64)
                .map(|_| {
                    let (set, barrier) = (Arc::clone(&set), Arc::clone(&barrier));
                    tokio::spawn(async move {
                        barrier.wait().await;
                        // All calls start before the probe has ended, or find the breaker closed by
                        // it.
                        let asked = set.store.acquire(&[set.asked.ask("a", 1)]);
                        barrier.wait().await;
                        asked.await.is_ok()
                    })
                })
                .collect();
            let mut passed = 0;
            for task in tasks {
                passed += u64::from(task.await.unwrap());
            }
            assert_eq!(passed, 1);
            assert_eq!(set.remote.count(Op::Acquire), before + 1);
            assert_eq!(set.store.probes(), round + 1);
            assert_eq!(set.store.state(), CircuitState::Closed);
        }
    });
}

/// With threads that start at the same instant, and a store that answers within the call.
#[test]
fn one_of_many_simultaneous_threads_probes() {
    let set = set(1);
    for _ in 0..50 {
        set.remote.plan([Fault::FailsAtOnce(Kind::Timeout)]);
        assert!(matches!(
            set.store.acquire(&[set.asked.ask("a", 1)]),
            Check::Ready(Err(_))
        ));
        set.wait_until_half_open();
        // The probe fails, so that the breaker stays open for later calls.
        set.remote.usually(Fault::FailsAtOnce(Kind::Timeout));
        let (before, barrier) = (set.remote.count(Op::Acquire), Barrier::new(8));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    barrier.wait();
                    let check = set.store.acquire(&[set.asked.ask("a", 1)]);
                    assert!(matches!(check, Check::Ready(Err(_))));
                });
            }
        });
        assert_eq!(set.remote.count(Op::Acquire), before + 1);
        set.wait_until_half_open();
        set.remote.usually(Fault::AtOnce);
        assert!(matches!(
            set.store.acquire(&[set.asked.ask("a", 1)]),
            Check::Ready(Ok(_))
        ));
    }
}

#[tokio::test]
async fn a_dropped_probe_makes_room_for_the_next() {
    let set = set(1);
    set.open().await;
    set.wait_until_half_open();
    let mut cx = Context::from_waker(Waker::noop());
    for polls in 0..3 {
        set.remote.plan([Fault::Silent]);
        let mut probe = Box::pin(set.store.acquire(&[set.asked.ask("a", 1)]).into_future());
        for _ in 0..polls {
            assert!(probe.as_mut().poll(&mut cx).is_pending());
        }
        // While it exists, other calls are rejected.
        assert!(set.call().await.unwrap_err().is_unavailable());
        assert_eq!(set.remote.running(), 1);
        drop(probe);
        assert_eq!(set.store.state(), CircuitState::HalfOpen);
    }
    assert!(set.call_with(Fault::None).await.is_ok());
    assert_eq!(set.store.state(), CircuitState::Closed);
    assert_eq!((set.store.probes(), set.store.rejected()), (4, 3));
}

/// Its future is in a queue that nobody polls, so no deadline inside ends it.
#[tokio::test]
async fn a_probe_that_nobody_polls_makes_room_for_the_next() {
    let set = set(1);
    set.open().await;
    let mut probes = Vec::new();
    for _ in 0..3 {
        set.clock.advance(LONGEST);
        set.remote.plan([Fault::Fails(Kind::Timeout)]);
        probes.push(set.store.acquire(&[set.asked.ask("a", 1)]).into_future());
        assert!(set.call().await.unwrap_err().is_unavailable());
        assert_eq!(set.store.state(), CircuitState::HalfOpen);
    }
    set.clock.advance(LONGEST);
    assert!(set.call_with(Fault::None).await.is_ok());
    assert_eq!((set.store.probes(), set.store.rejected()), (4, 3));
    // The failures of the others belong to an earlier state.
    for probe in probes {
        assert!(probe.await.is_err());
    }
    assert_eq!(set.store.state(), CircuitState::Closed);
}

#[tokio::test]
async fn dropped_calls_do_not_count_as_failures() {
    let set = set(2);
    set.remote.usually(Fault::Silent);
    let mut cx = Context::from_waker(Waker::noop());
    for _ in 0..10 {
        let mut call = Box::pin(set.store.acquire(&[set.asked.ask("a", 1)]).into_future());
        assert!(call.as_mut().poll(&mut cx).is_pending());
    }
    assert_eq!(
        (set.store.state(), set.store.opened()),
        (CircuitState::Closed, 0)
    );
}

/// A call that began before the state changed does not affect the later state.
#[tokio::test]
async fn late_results_count_only_in_the_state_in_which_they_began() {
    let set = set(2);
    let begin = |fault: Fault| {
        set.remote.plan([fault]);
        Box::pin(set.store.acquire(&[set.asked.ask("a", 1)]).into_future())
    };
    let late_answers = [begin(Fault::None), begin(Fault::None)];
    let late_failures = [
        begin(Fault::Fails(Kind::Timeout)),
        begin(Fault::Fails(Kind::Timeout)),
        begin(Fault::Fails(Kind::Timeout)),
    ];
    set.open().await;
    let [first, second] = late_answers;
    assert!(first.await.is_ok());
    assert_eq!(set.store.state(), CircuitState::Open);
    set.wait_until_half_open();
    assert!(second.await.is_ok());
    assert_eq!(set.store.state(), CircuitState::HalfOpen);
    let [first, second, third] = late_failures;
    assert!(first.await.is_err());
    assert_eq!(set.store.state(), CircuitState::HalfOpen);
    assert!(set.call_with(Fault::None).await.is_ok());
    // Two failures would open it, but these began in an earlier state.
    assert!(second.await.is_err() && third.await.is_err());
    assert_eq!(
        (set.store.state(), set.store.opened()),
        (CircuitState::Closed, 1)
    );
}

#[tokio::test]
async fn a_clock_that_steps_back_does_not_prolong_a_pause() {
    let set = set(1);
    set.open().await;
    set.clock.set(Timestamp::from_nanos(0));
    assert_eq!(set.store.state(), CircuitState::HalfOpen);
    assert!(set.call_with(Fault::None).await.is_ok());
    assert_eq!(set.store.state(), CircuitState::Closed);
}

/// Panics on every call.
#[derive(Clone)]
struct Panics;

impl Backend for Panics {
    type Error = StoreError;
}

impl Store<TokenBucket> for Panics {
    type Answer = Never<Result<Decisions, StoreError>>;
    type Done = Never<Result<(), StoreError>>;

    fn acquire(&self, _: &[Ask<'_, TokenBucket>]) -> Check<Self::Answer> {
        panic!("a fault of the store")
    }
    fn look(&self, _: &[Ask<'_, TokenBucket>]) -> Check<Self::Answer> {
        Check::Ready(Err(StoreError::timeout()))
    }
    fn settle(&self, _: Vec<Settlement<'_, TokenBucket>>) -> Check<Self::Done> {
        Check::Ready(Ok(()))
    }
    fn reset(&self, _: &Policy, _: &Key) -> Check<Self::Done> {
        Check::Ready(Ok(()))
    }
}

#[test]
fn a_panicking_probe_makes_room_for_the_next() {
    let (clock, asked) = (ManualClock::default(), Asked::of(TokenBucket::per_hour(1)));
    let settings = CircuitBreakerConfig::new().failures(1).clock(clock.clone());
    let store = Panics.circuit_breaker(settings);
    assert!(matches!(
        store.look(&[asked.ask("a", 1)]),
        Check::Ready(Err(_))
    ));
    clock.advance(LONGEST);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        drop(store.acquire(&[asked.ask("a", 1)]))
    }));
    assert!(panicked.is_err());
    assert_eq!(store.state(), CircuitState::HalfOpen);
    let check = Store::<TokenBucket>::reset(&store, &asked.policy, &"a".into());
    assert!(matches!(check, Check::Ready(Ok(()))));
    assert_eq!(store.state(), CircuitState::Closed);
}

/// Units lie where they were after a renewal that certainly was not made: the circuit rejects it, or
/// its error says that it wrote nothing.
#[tokio::test]
async fn a_renewal_that_changes_nothing_is_known_as_not_made() {
    for kind in Kind::ALL {
        let set = set(1);
        let decision = set.asked.acquire(&set.store, "a", 1).await.unwrap();
        let renewal = || set.asked.settlement("a", &decision, 1);
        let expected = match kind {
            Kind::Contended | Kind::Unsupported | Kind::Unwritten => Renewed::NotMade,
            Kind::Timeout | Kind::Unavailable | Kind::Other => Renewed::Unknown,
        };
        for fault in [Fault::Fails(kind), Fault::FailsAtOnce(kind)] {
            set.remote.plan([fault]);
            assert_eq!(set.remote.renew(renewal()).await, expected, "{fault:?}");
        }
        set.remote.plan([Fault::Fails(kind)]);
        assert_eq!(set.store.renew(renewal()).await, expected, "{kind:?}");
        set.open().await;
        let twice = set
            .store
            .clone()
            .circuit_breaker(CircuitBreakerConfig::new());
        let sent = set.remote.count(Op::Settle);
        assert_eq!(set.store.renew(renewal()).await, Renewed::NotMade);
        assert_eq!(twice.renew(renewal()).await, Renewed::NotMade);
        assert_eq!(set.remote.count(Op::Settle), sent);
    }
}

/// Waits for something that happens before `until`.
async fn happens(until: Instant, what: &str, has_happened: impl AsyncFn() -> bool) {
    while !has_happened().await {
        assert!(Instant::now() < until, "{what}");
        sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn permits_whose_renewal_is_rejected_are_held_once() {
    let (remote, clock) = (
        Remote::with_clock(SystemClock::default()),
        ManualClock::default(),
    );
    // What is given back is not awaited.
    remote.usually(Fault::AtOnce);
    let settings = CircuitBreakerConfig::new().failures(1).clock(clock.clone());
    let store = remote.clone().circuit_breaker(settings);
    let lease = Duration::from_secs(9);
    let rule = InFlight::at_most(10).lease(lease);
    let limiter = Limiter::new(Policy::new("exports"), rule, store.clone());
    let taken_at = Instant::now();
    let mut permits = Vec::new();
    for _ in 0..10 {
        permits.push(limiter.permit("a", Cost::ONE).await.unwrap().unwrap());
    }
    let are_free = async |units: u64| {
        let look = limiter.look("a").await.unwrap();
        look.remaining() == Some(units)
    };
    remote.plan([Fault::Fails(Kind::Unavailable)]);
    assert!(limiter.look("a").await.is_err());
    // Before the lease is over, after which the units would be free without having been given back.
    let soon = taken_at + lease * 15 / 16;
    happens(soon, "rejected", async || store.rejected() >= 10).await;
    clock.advance(Duration::from_secs(1));
    assert!(are_free(0).await);
    assert_eq!(store.state(), CircuitState::Closed);
    permits.truncate(5);
    happens(soon, "five are free", async || are_free(5).await).await;
    let sent = remote.count(Op::Settle);
    happens(soon, "renewed", async || {
        remote.count(Op::Settle) >= sent + 5
    })
    .await;
    permits.clear();
    happens(soon, "ten are free", async || are_free(10).await).await;
}

#[test]
fn invalid_settings_are_errors_that_say_what_to_write() {
    let settings = CircuitBreakerConfig::new;
    let failures = settings().try_failures(0).unwrap_err().to_string();
    assert!(failures.contains("expected at least 1"), "{failures}");
    let (zero, second) = (Duration::ZERO, Duration::from_secs(1));
    for (first, longest) in [(zero, second), (second, second - Duration::from_nanos(1))] {
        let error = settings().try_open_for(first, longest).unwrap_err();
        assert!(
            error.to_string().contains("expected a time above zero"),
            "{error}"
        );
    }
    assert!(settings().try_open_for(second, second).is_ok());
    assert!(
        settings()
            .try_open_for(Duration::MAX, Duration::MAX)
            .is_ok()
    );
}
