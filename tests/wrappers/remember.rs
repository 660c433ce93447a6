//! `.remember_refusals()`: answers from memory what the store has refused.

use std::{
    convert::Infallible,
    future::{Future, IntoFuture},
    pin::pin,
    sync::atomic::{AtomicU64, Ordering},
    task::{Context, Waker},
    time::Duration,
};

use support::counting::{allocations, bytes_kept};
use tollgate::{
    AnyRule, Cost, Decision, Policy, Timestamp, TokenBucket, Verdict,
    key::Key,
    store::{
        Backend, Local, RememberRefusals, Store, StoreExt,
        driver::{Ask, Check, Decisions, Never, Settlement},
    },
    time::{Clock, ManualClock},
};

use crate::fakes::{Asked, Fault, Kind, Op, Remote, at_once, only, still};

type Remembering = RememberRefusals<Remote<TokenBucket, ManualClock>, TokenBucket, ManualClock>;

struct Set {
    remote: Remote<TokenBucket, ManualClock>,
    clock: ManualClock,
    store: Remembering,
}

fn set() -> Set {
    let clock = ManualClock::default();
    let remote = Remote::with_clock(clock.clone());
    remote.usually(Fault::AtOnce);
    let store = remote.clone().remember_refusals().clock(clock.clone());
    Set {
        remote,
        clock,
        store,
    }
}

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[tokio::test]
async fn repeated_calls_are_refused_from_memory_until_the_store_would_admit() {
    let asked = Asked::of(TokenBucket::per_minute(6).burst(1));
    for fault in [Fault::AtOnce, Fault::None] {
        let Set {
            remote,
            clock,
            store,
        } = set();
        remote.usually(fault);
        assert!(asked.acquire(&store, "a", 1).await.unwrap().is_admitted());
        for round in 1..=3_u64 {
            let first = asked.acquire(&store, "a", 1).await.unwrap();
            assert_eq!(first.retry_after(), Some(seconds(10)));
            let calls = remote.calls().len();
            for second in 1..10 {
                clock.advance(seconds(1));
                let again = asked.acquire(&store, "a", 1).await.unwrap();
                assert_eq!(again.verdict(), Verdict::Refuse);
                assert_eq!(again.retry_after(), Some(seconds(10 - second)));
                assert_eq!(again.reset_after(), seconds(10 - second));
                assert_eq!(again.more_after(), seconds(10 - second));
                assert_eq!((again.limit(), again.remaining()), (Some(1), Some(0)));
                assert_eq!(again.quota(), first.quota());
                assert_eq!(again.at(), first.at().saturating_add(seconds(second)));
                assert_eq!({ again }.take_charge(), None);
            }
            clock.advance(Duration::from_nanos(999_999_999));
            let again = asked.acquire(&store, "a", 1).await.unwrap();
            assert_eq!(again.retry_after(), Some(Duration::from_nanos(1)));
            assert_eq!(remote.calls().len(), calls);
            clock.advance(Duration::from_nanos(1));
            assert!(asked.acquire(&store, "a", 1).await.unwrap().is_admitted());
            assert_eq!((store.hits(), store.remembered()), (10 * round, round));
        }
        let clone = store.clone();
        assert_eq!((clone.hits(), clone.evicted(), clone.len()), (30, 0, 0));
    }
}

#[tokio::test]
async fn smaller_costs_and_other_rules_keys_and_policies_reach_the_store() {
    let Set { remote, store, .. } = set();
    let asked = Asked::of(TokenBucket::per_minute(10));
    assert!(asked.acquire(&store, "a", 8).await.unwrap().is_admitted());
    assert!(!asked.acquire(&store, "a", 3).await.unwrap().is_admitted());
    let calls = remote.calls().len();
    for units in [3, 4, 10, 11] {
        assert!(
            !asked
                .acquire(&store, "a", units)
                .await
                .unwrap()
                .is_admitted()
        );
    }
    assert_eq!(remote.calls().len(), calls);
    assert!(asked.acquire(&store, "a", 2).await.unwrap().is_admitted());
    assert!(asked.acquire(&store, "b", 3).await.unwrap().is_admitted());
    let more = Asked::of(TokenBucket::per_minute(1000));
    assert_eq!(
        more.acquire(&store, "a", 3).await.unwrap().limit(),
        Some(1000)
    );
    let other = Asked {
        policy: Policy::new("other"),
        rule: asked.rule,
    };
    assert!(other.acquire(&store, "a", 3).await.unwrap().is_admitted());
    assert_eq!(remote.calls().len(), calls + 4);
}

/// A call with a higher cost than the remembered refusal is refused with the wait of that refusal.
/// If its cost exceeds the capacity, it gets no wait, because it can never be admitted.
#[tokio::test]
async fn a_higher_cost_gets_the_wait_of_the_lower_one_or_never() {
    let Set { clock, store, .. } = set();
    let asked = Asked::of(TokenBucket::per_minute(6));
    assert!(asked.acquire(&store, "a", 6).await.unwrap().is_admitted());
    assert!(!asked.acquire(&store, "a", 2).await.unwrap().is_admitted());
    clock.advance(seconds(15));
    let higher = asked.acquire(&store, "a", 6).await.unwrap();
    assert_eq!(higher.retry_after(), Some(seconds(5)));
    // A token has refilled meanwhile, which only the next answer of the store will include.
    assert_eq!(
        (higher.remaining(), higher.more_after()),
        (Some(0), seconds(5))
    );
    assert_eq!(higher.reset_after(), seconds(45));
    let never = asked.acquire(&store, "a", 7).await.unwrap();
    assert_eq!(never.retry_after(), None);
    assert_eq!(store.hits(), 2);
}

#[tokio::test]
async fn a_cost_that_can_never_pass_is_remembered_for_a_while() {
    for (time, change) in [(seconds(1), None), (seconds(9), Some(seconds(9)))] {
        let Set {
            remote,
            clock,
            store,
        } = set();
        let store = match change {
            Some(time) => store.forever_for(time),
            None => store,
        };
        let asked = Asked::of(TokenBucket::per_minute(6));
        for _ in 0..3 {
            let calls = remote.calls().len();
            for _ in 0..2 {
                let refusal = asked.acquire(&store, "a", 7).await.unwrap();
                assert_eq!(
                    (refusal.verdict(), refusal.retry_after()),
                    (Verdict::Refuse, None)
                );
                assert_eq!(refusal.remaining(), Some(6));
            }
            clock.advance(time - Duration::from_nanos(1));
            assert_eq!(
                asked.acquire(&store, "a", 8).await.unwrap().retry_after(),
                None
            );
            assert_eq!(remote.calls().len(), calls + 1);
            // A smaller cost may pass.
            assert!(asked.acquire(&store, "b", 1).await.unwrap().is_admitted());
            clock.advance(Duration::from_nanos(1));
        }
    }
}

#[tokio::test]
async fn calls_of_several_asks_always_reach_the_store() {
    let Set { remote, store, .. } = set();
    let asked = Asked::of(TokenBucket::per_minute(1));
    let both = [asked.ask("a", 1), asked.ask("b", 1)];
    assert!(at_once(store.acquire(&both)).is_admitted());
    for _ in 0..3 {
        assert!(!at_once(store.acquire(&both)).is_admitted());
    }
    assert_eq!((store.len(), remote.count(Op::Acquire)), (0, 4));
    assert!(!asked.acquire(&store, "a", 1).await.unwrap().is_admitted());
    assert!(!at_once(store.acquire(&both)).is_admitted());
    assert_eq!(
        (store.len(), store.hits(), remote.count(Op::Acquire)),
        (1, 0, 6)
    );
    assert_eq!(at_once(store.acquire(&[])).as_slice(), []);
}

#[tokio::test]
async fn looks_always_reach_the_store() {
    let Set { remote, store, .. } = set();
    let asked = Asked::of(TokenBucket::per_minute(1));
    assert_eq!(asked.pass(&store, "a", 5).await, 1);
    for _ in 0..3 {
        assert_eq!(asked.look(&store, "a").await.unwrap().remaining(), Some(0));
    }
    assert_eq!((remote.count(Op::Look), store.remembered()), (3, 1));
}

#[tokio::test]
async fn failures_and_undecided_answers_are_not_remembered() {
    let Set { remote, store, .. } = set();
    let asked = Asked::of(TokenBucket::per_minute(1));
    for kind in Kind::ALL {
        for fault in [Fault::Fails(kind), Fault::FailsAtOnce(kind)] {
            remote.plan([fault]);
            assert!(asked.acquire(&store, "a", 1).await.is_err());
        }
    }
    assert!(store.is_empty());
    // A full store leaves new keys undecided.
    let full: Local<TokenBucket> = tollgate::store::LocalBuilder::new()
        .capacity(0)
        .at_capacity(tollgate::store::AtCapacity::RefuseNewcomers)
        .build();
    let store = full.remember_refusals();
    let answer = asked.acquire(&store, "a", 1).await.unwrap();
    assert_eq!(answer.verdict(), Verdict::Undecided { admitted: false });
    assert!(store.is_empty());
}

#[tokio::test]
async fn settling_and_resetting_forget_a_key() {
    for fault in [Fault::AtOnce, Fault::None, Fault::Fails(Kind::Timeout)] {
        let Set { remote, store, .. } = set();
        let asked = Asked::of(TokenBucket::per_minute(1));
        let first = asked.acquire(&store, "a", 1).await.unwrap();
        assert!(asked.acquire(&store, "b", 1).await.unwrap().is_admitted());
        let refused = async |key: &'static str| {
            let calls = remote.count(Op::Acquire);
            let decision = asked.acquire(&store, key, 1).await.unwrap();
            assert!(!decision.is_admitted());
            remote.count(Op::Acquire) == calls
        };
        let forget = async |what: usize| {
            remote.plan([fault]);
            let key = Key::from("a");
            let result = match what {
                0 => {
                    // The settlement does not change the charge.
                    let settlement = asked.settlement("a", &first, 1);
                    store.settle(vec![settlement]).await
                }
                _ => Store::<TokenBucket>::reset(&store, &asked.policy, &key).await,
            };
            assert_eq!(result.is_err(), matches!(fault, Fault::Fails(_)));
        };
        assert!(!refused("a").await && !refused("b").await);
        assert!(refused("a").await && refused("b").await);
        forget(0).await;
        assert!(!refused("a").await && refused("b").await);
        assert!(refused("a").await);
        forget(1).await;
        let calls = remote.count(Op::Acquire);
        let again = asked.acquire(&store, "a", 1).await.unwrap();
        assert_eq!(again.is_admitted(), !matches!(fault, Fault::Fails(_)));
        assert_eq!(remote.count(Op::Acquire), calls + 1);
        assert!(refused("b").await);
    }
}

/// A dropped settlement cannot be awaited, and still forgets the key.
#[tokio::test]
async fn a_dropped_settlement_forgets_its_key() {
    let Set { remote, store, .. } = set();
    let asked = Asked::of(TokenBucket::per_minute(1));
    let first = asked.acquire(&store, "a", 1).await.unwrap();
    let mut cx = Context::from_waker(Waker::noop());
    for polls in 0..3 {
        assert!(!asked.acquire(&store, "a", 1).await.unwrap().is_admitted());
        assert_eq!(store.len(), 1);
        remote.plan([Fault::Silent]);
        let settlement = asked.settlement("a", &first, 0);
        let mut settle = Box::pin(store.settle(vec![settlement]).into_future());
        for _ in 0..polls {
            assert!(settle.as_mut().poll(&mut cx).is_pending());
        }
        drop(settle);
        assert_eq!(store.len(), 0);
    }
}

/// A layer drops its settlements, and calls may be refused before the store has made them.
#[tokio::test(start_paused = true)]
async fn a_dropped_settlement_forgets_its_key_when_it_is_made() {
    for is_reset in [false, true] {
        let Set { remote, store, .. } = set();
        let asked = Asked::of(TokenBucket::per_minute(1));
        let first = asked.acquire(&store, "a", 1).await.unwrap();
        remote.plan([Fault::Slow(seconds(1))]);
        if is_reset {
            let key = Key::from("a");
            drop(Store::<TokenBucket>::reset(&store, &asked.policy, &key));
        } else {
            drop(store.settle(vec![asked.settlement("a", &first, 0)]));
        }
        assert!(!asked.acquire(&store, "a", 1).await.unwrap().is_admitted());
        assert_eq!(store.len(), 1);
        tokio::time::sleep(seconds(2)).await;
        assert_eq!(store.len(), 0);
        assert!(asked.acquire(&store, "a", 1).await.unwrap().is_admitted());
    }
}

/// A refusal in flight while its key was forgotten is outdated.
#[tokio::test]
async fn a_refusal_from_before_a_settlement_is_not_remembered_after_it() {
    let Set { remote, store, .. } = set();
    let asked = Asked::of(TokenBucket::per_minute(1));
    let first = asked.acquire(&store, "a", 1).await.unwrap();
    remote.plan([Fault::None]);
    let before = store.acquire(&[asked.ask("a", 1)]);
    let settlement = asked.settlement("a", &first, 1);
    assert!(store.settle(vec![settlement]).await.is_ok());
    // It was refused because of the earlier charges.
    assert!(!before.await.unwrap().is_admitted());
    assert_eq!((store.len(), store.remembered()), (0, 0));
    assert!(!asked.acquire(&store, "a", 1).await.unwrap().is_admitted());
    assert_eq!((store.len(), store.remembered()), (1, 1));
}

#[tokio::test]
async fn a_dropped_answer_is_not_remembered() {
    let Set { remote, store, .. } = set();
    let asked = Asked::of(TokenBucket::per_minute(1));
    assert_eq!(asked.pass(&store, "a", 1).await, 1);
    let mut cx = Context::from_waker(Waker::noop());
    for fault in [Fault::None, Fault::Silent, Fault::Mute] {
        remote.plan([fault]);
        drop(store.acquire(&[asked.ask("a", 1)]));
        remote.plan([fault]);
        let mut answer = pin!(store.acquire(&[asked.ask("a", 1)]).into_future());
        if fault != Fault::None {
            assert!(answer.as_mut().poll(&mut cx).is_pending());
        }
    }
    assert!(store.is_empty());
}

#[tokio::test]
async fn after_a_clock_step_back_calls_reach_the_store() {
    let Set {
        remote,
        clock,
        store,
    } = set();
    let asked = Asked::of(TokenBucket::per_minute(1));
    assert_eq!(asked.pass(&store, "a", 2).await, 1);
    let calls = remote.calls().len();
    let now = clock.now();
    clock.set(Timestamp::from_nanos(now.as_nanos() - 1));
    assert_eq!(asked.pass(&store, "a", 1).await, 0);
    assert_eq!(remote.calls().len(), calls + 1);
}

#[test]
fn memory_is_bounded_for_any_calls() {
    let (clock, asked) = (ManualClock::default(), Asked::of(TokenBucket::per_hour(1)));
    for capacity in [0, 1, 2, 7, 8, 9, 100, 1000] {
        let (local, _) = still::<TokenBucket>();
        let store = local
            .remember_refusals()
            .capacity(capacity)
            .clock(clock.clone());
        let mut most = 0;
        for key in 0..4000_u64 {
            for _ in 0..2 {
                at_once(store.acquire(&[asked.ask(key, 1)]));
            }
            most = most.max(store.len());
        }
        assert!(most <= capacity, "{most} of {capacity}");
        // Sets fill unevenly, but all of them are full by now.
        assert!(most >= capacity / 8 * 8, "{most} of {capacity}");
        let room = most as u64;
        assert_eq!(store.remembered(), if capacity == 0 { 0 } else { 4000 });
        assert_eq!(store.evicted(), store.remembered() - room);
    }
}

#[test]
fn a_flood_takes_no_more_bytes_than_the_capacity() {
    let asked = Asked::of(TokenBucket::per_hour(1));
    let store = Closed.remember_refusals().capacity(1000);
    let flood = |keys: std::ops::Range<u64>| {
        let (bytes, ()) = bytes_kept(|| {
            for key in keys {
                assert!(!at_once(store.acquire(&[asked.ask(key, 1)])).is_admitted());
            }
        });
        bytes
    };
    let filled = flood(0..10_000);
    assert!((100_000..500_000).contains(&filled), "{filled}");
    assert_eq!(flood(10_000..20_000), 0);
}

/// Refuses every call for an hour, under any rule.
#[derive(Clone)]
pub(crate) struct Closed;

impl Backend for Closed {
    type Error = Infallible;
}

impl<R> Store<R> for Closed {
    type Answer = Never<Result<Decisions, Infallible>>;
    type Done = Never<Result<(), Infallible>>;

    fn acquire(&self, asks: &[Ask<'_, R>]) -> Check<Self::Answer> {
        self.look(asks)
    }
    fn look(&self, asks: &[Ask<'_, R>]) -> Check<Self::Answer> {
        let refusal = Decision::new(Verdict::Refuse, Timestamp::default(), 1);
        let refusal = refusal.with_retry_after(Some(seconds(3600)));
        Check::Ready(Ok(Decisions::repeat(refusal, asks.len())))
    }
    fn settle(&self, _: Vec<Settlement<'_, R>>) -> Check<Self::Done> {
        Check::Ready(Ok(()))
    }
    fn reset(&self, _: &Policy, _: &Key) -> Check<Self::Done> {
        Check::Ready(Ok(()))
    }
}

/// Expired refusals are evicted first, then those that expire soonest, among the eight of a set.
#[test]
fn refusals_that_expire_first_are_evicted_first() {
    let clock = ManualClock::default();
    let (local, _) = still::<TokenBucket>();
    let store = local.remember_refusals().capacity(8).clock(clock.clone());
    // The n-th key is refused for n minutes.
    let rules: Vec<Asked> = (1..=9)
        .map(|minutes| {
            let period = Duration::from_secs(60 * minutes);
            Asked::of(TokenBucket::new(tollgate::Quota::new(1, period)))
        })
        .collect();
    let refuse = |n: usize| {
        for _ in 0..2 {
            at_once(store.acquire(&[rules[n].ask(n as u64, 1)]));
        }
    };
    let is_known = |n: usize| {
        let hits = store.hits();
        at_once(store.acquire(&[rules[n].ask(n as u64, 1)]));
        store.hits() > hits
    };
    (0..8).for_each(refuse);
    assert_eq!((store.len(), store.evicted()), (8, 0));
    assert!((0..8).all(is_known));
    refuse(8);
    assert_eq!((store.len(), store.evicted()), (8, 1));
    assert!((1..9).all(is_known));
    assert!(!is_known(0));
    // Key 0 has replaced the next one. Three minutes later two have expired, and one of them is
    // evicted.
    assert_eq!(store.evicted(), 2);
    clock.advance(seconds(180));
    refuse(1);
    assert_eq!((store.len(), store.evicted()), (8, 2));
    assert!((3..9).all(is_known));
}

#[test]
fn a_hit_allocates_nothing() {
    let long = Key::from("k".repeat(100));
    let policy = Policy::new(&"p".repeat(100));
    let rule: AnyRule = "token-bucket 1/1h & token-bucket 1/1d".parse().unwrap();
    let store = Local::<AnyRule>::new().remember_refusals();
    let call = || {
        let check = store.acquire(&[Ask::new(&policy, &rule, long, Cost::ONE)]);
        at_once(check).is_admitted()
    };
    assert!(call() && !call());
    let (count, admitted) = allocations(|| (0..100).filter(|_| call()).count());
    assert_eq!((admitted, count, store.hits()), (0, 0, 100));
}

#[test]
fn concurrent_calls_and_settlements_admit_exactly_the_limit() {
    let store = Local::<TokenBucket>::new().remember_refusals().capacity(64);
    let asked = Asked::of(TokenBucket::per_hour(50));
    let admitted = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (store, asked, admitted) = (&store, &asked, &admitted);
            scope.spawn(move || {
                for n in 0..4000_u64 {
                    let key = (n * 7 + thread) % 20;
                    let decision = only(at_once(store.acquire(&[asked.ask(key, 1)])));
                    admitted.fetch_add(u64::from(decision.is_admitted()), Ordering::SeqCst);
                    if n % 100 == thread {
                        // A settlement without an effect still forgets the key.
                        let charge = tollgate::Charge::new(decision.at(), 1).with_delay(None);
                        let settlement =
                            Settlement::new(&asked.policy, &asked.rule, key.into(), charge, 1)
                                .unwrap();
                        at_once(store.settle(vec![settlement]));
                    }
                }
            });
        }
    });
    assert_eq!(admitted.load(Ordering::SeqCst), 20 * 50);
    assert!(store.len() <= 64);
    assert!(store.hits() > 0);
}
