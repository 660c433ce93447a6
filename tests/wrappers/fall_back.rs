//! `.fall_back_to(…)`: a local store decides while the remote one fails.
#![allow(unreachable_pub, reason = "items of a test module")]

use std::{
    future::{Future, IntoFuture},
    task::{Context, Waker},
    time::Duration,
};

use tokio::time::{Instant, advance};
use tollgate::{
    AnyRule, Cost, TokenBucket, Verdict,
    key::Key,
    store::{
        CircuitBreakerConfig, Fallback, Local, Store, StoreExt,
        driver::{Ask, Decisions, Settlement},
    },
    time::TokioClock,
};

use crate::fakes::{Asked, Bucket, Fault, Kind, Op, Remote, at_once, local, only};

pub type Falling = Fallback<Bucket, Local<TokenBucket, TokioClock>, TokenBucket>;

pub struct Set {
    pub remote: Bucket,
    pub local: Local<TokenBucket, TokioClock>,
    pub store: Falling,
    pub asked: Asked,
}

/// Returns a bucket of ten an hour, of which this node has half.
pub fn set() -> Set {
    let (remote, local) = (Bucket::new(), local());
    Set {
        store: remote.clone().fall_back_to(local.clone()).share(1, 2),
        remote,
        local,
        asked: Asked::of(TokenBucket::per_hour(10)),
    }
}

pub const DOWN: Fault = Fault::Fails(Kind::Unavailable);

impl Set {
    pub fn down(&self) {
        self.remote.usually(DOWN);
    }

    pub fn up(&self) {
        self.remote.usually(Fault::None);
    }

    pub async fn pass(&self, key: impl Into<Key>, count: usize) -> usize {
        self.asked.pass(&self.store, key, count).await
    }

    /// Returns the units that the remote store would admit for a key now.
    pub fn there(&self, key: impl Into<Key>) -> u64 {
        let look = self
            .remote
            .local
            .look(&self.asked.policy, &self.asked.rule, &key.into());
        look.remaining().unwrap()
    }

    /// Returns the units that the local store would admit for a key now.
    pub fn here(&self, key: impl Into<Key>) -> u64 {
        let share = TokenBucket::per_hour(5);
        let look = self.local.look(&self.asked.policy, &share, &key.into());
        look.remaining().unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn while_the_store_answers_the_local_store_decides_nothing() {
    let set = set();
    for fault in [
        Fault::None,
        Fault::AtOnce,
        Fault::Slow(Duration::from_millis(3)),
    ] {
        set.remote.usually(fault);
        assert_eq!(set.pass("a", 2).await, 2);
        assert_eq!(
            set.asked.look(&set.store, "a").await.unwrap().limit(),
            Some(10)
        );
    }
    assert_eq!(set.there("a"), 4);
    assert!(set.local.is_empty());
    let Set { store, .. } = set;
    assert_eq!((store.failures(), store.decided()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn during_any_failure_this_nodes_share_is_admitted() {
    // Contention is not a failure, see `contention.rs`.
    for kind in [Kind::Timeout, Kind::Unavailable, Kind::Other] {
        for fault in [Fault::Fails(kind), Fault::FailsAtOnce(kind)] {
            let set = set();
            set.remote.usually(fault);
            assert_eq!(set.pass("a", 20).await, 5);
            let refusal = set.asked.acquire(&set.store, "a", 1).await.unwrap();
            // The numbers are those of the share: five an hour.
            assert_eq!(refusal.verdict(), Verdict::Refuse);
            assert_eq!(refusal.limit(), Some(5));
            assert_eq!(refusal.retry_after(), Some(Duration::from_secs(720)));
            let look = set.asked.look(&set.store, "b").await.unwrap();
            assert_eq!((look.remaining(), { look }.take_charge()), (Some(5), None));
            assert_eq!(set.pass("b", 3).await, 3);
            advance(Duration::from_secs(720)).await;
            assert_eq!(set.pass("a", 20).await, 1);
            assert_eq!(set.store.decided(), 20 + 1 + 1 + 3 + 20);
            assert_eq!(set.store.failures(), set.store.decided());
        }
    }
}

/// Holds for the first and the second outage: the local store keeps its state in between.
#[tokio::test(start_paused = true)]
async fn the_store_decides_after_an_outage_and_a_second_outage_adds_no_second_share() {
    let set = set();
    assert_eq!(set.pass("a", 4).await, 4);
    set.down();
    assert_eq!(set.pass("a", 20).await, 5);
    set.up();
    // As if there had been no calls meanwhile. Each call reaches the store once.
    let calls = set.remote.calls().len();
    assert_eq!((set.there("a"), set.pass("a", 20).await), (6, 6));
    assert_eq!(set.remote.calls()[calls..], [Op::Acquire; 20]);
    set.down();
    assert_eq!(set.pass("a", 20).await, 0);
    // The share refills five an hour.
    advance(Duration::from_secs(2 * 720)).await;
    assert_eq!(set.pass("a", 20).await, 2);
}

#[tokio::test(start_paused = true)]
async fn a_reset_clears_both_stores() {
    let faults = [
        (Fault::None, 0),
        (Fault::AtOnce, 0),
        (DOWN, 1),
        (Fault::FailsAtOnce(Kind::Other), 1),
    ];
    for (fault, failures) in faults {
        let set = set();
        assert_eq!(set.pass("a", 10).await, 10);
        set.down();
        assert_eq!(set.pass("a", 10).await, 5);
        set.remote.usually(fault);
        let before = set.store.failures();
        let Ok(()) = set.store.reset(&set.asked.policy, &Key::from("a")).await;
        assert_eq!(set.store.failures() - before, failures);
        assert!(set.local.is_empty());
        assert_eq!(set.there("a"), if failures == 0 { 10 } else { 0 });
    }
}

/// Holds for charges of either store, for any outages at the settlement, and for higher and lower
/// actual costs.
#[tokio::test(start_paused = true)]
async fn a_charge_is_settled_only_in_the_store_that_made_it() {
    let there = [Fault::None, Fault::AtOnce];
    let lost = [DOWN, Fault::FailsAtOnce(Kind::Other)];
    for charged in [there, lost].concat() {
        for settled in [there, lost].concat() {
            for actual in [0, 1, 4, 5] {
                let set = set();
                set.remote.usually(charged);
                let decision = set.asked.acquire(&set.store, "a", 4).await.unwrap();
                let failures = set.store.failures();
                set.remote.usually(settled);
                let settlement = set.asked.settlement("a", &decision, actual);
                let Ok(()) = set.store.settle(vec![settlement]).await;
                let is_there = there.contains(&charged);
                let is_lost = is_there && lost.contains(&settled);
                let left = |of| of - if is_lost { 4 } else { actual };
                let expected = if is_there {
                    (left(10), 5)
                } else {
                    (10, left(5))
                };
                let what = format!("{charged:?}, {settled:?}, {actual}");
                assert_eq!((set.there("a"), set.here("a")), expected, "{what}");
                // A lost settlement is counted. A charge made locally is never sent to the remote
                // store.
                assert_eq!(
                    set.store.failures() - failures,
                    u64::from(is_lost),
                    "{what}"
                );
                let sent = set.remote.count(Op::Settle);
                assert_eq!(sent, usize::from(is_there), "{what}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn charges_of_both_stores_are_settled_together() {
    let set = set();
    let mut decisions = Vec::new();
    for (key, fault) in [
        ("a", Fault::None),
        ("a", DOWN),
        ("b", Fault::None),
        ("c", DOWN),
    ] {
        set.remote.usually(fault);
        decisions.push((key, set.asked.acquire(&set.store, key, 3).await.unwrap()));
    }
    let settlements = decisions.iter();
    let settlements = settlements.map(|(key, decision)| set.asked.settlement(*key, decision, 1));
    set.up();
    let Ok(()) = set.store.settle(settlements.collect()).await;
    assert_eq!(["a", "b", "c"].map(|key| set.there(key)), [9, 9, 10]);
    assert_eq!(["a", "b", "c"].map(|key| set.here(key)), [4, 5, 4]);
    assert_eq!(set.remote.count(Op::Settle), 1);
}

/// With three levels, each charge is settled at its own.
#[tokio::test(start_paused = true)]
async fn a_charge_is_settled_in_its_store_behind_several_fallbacks() {
    let asked = Asked::of(TokenBucket::per_hour(16));
    for made_by in 0..4 {
        let stores = [(); 4].map(|()| Bucket::new());
        let [first, second, third, last] = stores.each_ref().map(Clone::clone);
        let inner = third.fall_back_to(last.fail_closed());
        let middle = second.fall_back_to(inner.share::<TokenBucket>(1, 2));
        let outer = first.fall_back_to(middle.share::<TokenBucket>(1, 2));
        let store = outer.share::<TokenBucket>(1, 2);
        stores[..made_by]
            .iter()
            .for_each(|store| store.usually(DOWN));
        let decision = asked.acquire(&store, "a", 2).await.unwrap();
        stores.iter().for_each(|store| store.usually(Fault::None));
        let Ok(()) = store
            .settle(vec![asked.settlement("a", &decision, 1)])
            .await;
        let settled = stores.each_ref().map(|store| store.count(Op::Settle));
        assert_eq!(settled, [0, 1, 2, 3].map(|n| usize::from(n == made_by)));
    }
}

/// The settlement has another rule, or the share has changed.
#[tokio::test(start_paused = true)]
async fn a_settlement_without_a_share_is_counted_and_not_made_elsewhere() {
    let (remote, asked) = (Bucket::new(), Asked::of(TokenBucket::per_hour(9)));
    let store = remote.clone().fall_back_to(local()).share(1, 3);
    remote.usually(DOWN);
    let decision = asked.acquire(&store, "a", 2).await.unwrap();
    remote.usually(Fault::None);
    let charge = { decision }.take_charge().unwrap();
    let two = TokenBucket::per_hour(2);
    let settlement = Settlement::new(&asked.policy, &two, "a".into(), charge, 0).unwrap();
    let Ok(()) = store.settle(vec![settlement]).await;
    assert_eq!((store.failures(), remote.count(Op::Settle)), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn the_local_store_decides_several_asks_together() {
    let set = set();
    let both = |units| [set.asked.ask("a", units), set.asked.ask("b", 1)];
    set.down();
    let first = set.store.acquire(&both(4)).await.unwrap();
    assert!(first.is_admitted());
    let second = set.store.acquire(&both(2)).await.unwrap();
    assert!(!second.is_admitted());
    assert_eq!(second.as_slice()[1].remaining(), Some(4));
    assert_eq!(["a", "b"].map(|key| set.here(key)), [1, 4]);
    set.up();
    let third = set.store.acquire(&both(10)).await.unwrap();
    assert!(third.is_admitted());
    assert_eq!(["a", "b"].map(|key| set.there(key)), [0, 9]);
}

#[tokio::test(start_paused = true)]
async fn a_rule_without_a_share_is_undecided() {
    let (remote, asked) = (Bucket::new(), Asked::of(TokenBucket::per_hour(2)));
    let store = remote.clone().fall_back_to(local()).share(1, 3);
    assert!(asked.acquire(&store, "a", 1).await.unwrap().is_admitted());
    remote.usually(DOWN);
    for _ in 0..3 {
        let decision = asked.acquire(&store, "a", 1).await.unwrap();
        assert_eq!(decision.verdict(), Verdict::Undecided { admitted: false });
    }
    let look = asked.look(&store, "a").await.unwrap();
    assert_eq!(look.verdict(), Verdict::Undecided { admitted: false });
    // One of two asks has no share: neither is charged.
    let nine = TokenBucket::per_hour(9);
    let two = [
        Ask::new(&asked.policy, &nine, "b".into(), Cost::ONE),
        asked.ask("a", 1),
    ];
    let decisions = store.acquire(&two).await.unwrap();
    let undecided = Verdict::Undecided { admitted: false };
    assert!(
        decisions
            .as_slice()
            .iter()
            .all(|decision| decision.verdict() == undecided)
    );
    assert_eq!(decisions.as_slice().len(), 2);
    assert_eq!((store.turned_away(), store.decided()), (5, 0));
    let ask = [Ask::new(&asked.policy, &nine, "b".into(), Cost::ONE)];
    let decision = only(store.acquire(&ask).await.unwrap());
    assert_eq!(decision.remaining(), Some(2));
}

#[tokio::test(start_paused = true)]
async fn a_function_returns_the_share_of_this_node() {
    let (remote, asked) = (Bucket::new(), Asked::of(TokenBucket::per_hour(10)));
    let builder = remote.clone().fall_back_to(local());
    let store = builder.rule(|rule: &TokenBucket| rule.try_burst(2).ok());
    remote.usually(DOWN);
    assert_eq!(asked.pass(&store, "a", 10).await, 2);
    remote.usually(Fault::None);
    assert_eq!(asked.pass(&store, "a", 20).await, 10);
}

#[tokio::test(start_paused = true)]
async fn rules_of_every_type_have_shares() {
    let remote = Remote::<AnyRule, TokioClock>::new();
    let store = remote.clone().fall_back_to(local()).share(1, 5);
    remote.usually(DOWN);
    let rule: AnyRule = "token-bucket 10/1h".parse().unwrap();
    assert_eq!(Asked::of(rule).pass(&store, "a", 9).await, 2);
    for (key, rule, share) in [
        ("b", "token-bucket 20/1h & fixed-window 15/1d", 3),
        ("c", "fixed-window 14/1d", 2),
        ("d", "sliding-window 10/1d", 2),
        ("e", "sliding-log 5/1d", 1),
    ] {
        let rule: AnyRule = rule.parse().unwrap();
        assert_eq!(Asked::of(rule).pass(&store, key, 9).await, share);
    }
    assert_eq!(store.turned_away(), 0);
    for without in ["leaky-bucket 10/1h", "fixed-window 4/1d"] {
        let rule: AnyRule = without.parse().unwrap();
        let decision = Asked::of(rule).acquire(&store, "f", 1).await.unwrap();
        assert!(decision.is_undecided(), "{without}");
    }
    assert_eq!(store.turned_away(), 2);
    let remote = Remote::<(TokenBucket, TokenBucket), TokioClock>::new();
    let store = remote.clone().fall_back_to(local()).share(1, 5);
    remote.usually(DOWN);
    let pair = (TokenBucket::per_hour(10), TokenBucket::per_minute(15));
    assert_eq!(Asked::of(pair).pass(&store, "a", 9).await, 2);
}

#[test]
fn an_invalid_share_is_an_error_that_says_what_to_write() {
    for (numerator, denominator) in [(0, 3), (2, 1), (0, 0), (1, 0)] {
        let (local, _) = crate::fakes::still::<TokenBucket>();
        let builder = local.clone().fall_back_to(local);
        let error = builder
            .try_share::<TokenBucket>(numerator, denominator)
            .unwrap_err();
        assert!(
            error.to_string().contains("expected a part of the whole"),
            "{error}"
        );
    }
}

/// With a breaker inside, an outage costs no waiting, and each key makes at most one probe.
#[tokio::test(start_paused = true)]
async fn behind_a_breaker_an_outage_costs_no_waiting() {
    let set = set();
    let clock = TokioClock::new();
    let breaker = CircuitBreakerConfig::new().failures(3).clock(clock);
    let store = set
        .remote
        .clone()
        .timeout(Duration::from_millis(100))
        .circuit_breaker(breaker)
        .fall_back_to(set.local.clone())
        .share(1, 2);
    set.remote.usually(Fault::Silent);
    for _ in 0..3 {
        assert!(
            set.asked
                .acquire(&store, "a", 1)
                .await
                .unwrap()
                .is_admitted()
        );
    }
    let begun = Instant::now();
    let decisions = at_once::<_, Decisions, _>(store.acquire(&[set.asked.ask("a", 1)]));
    assert!(decisions.is_admitted());
    assert_eq!(set.asked.pass(&store, "a", 100).await, 1);
    assert_eq!(begun.elapsed(), Duration::ZERO);
    assert_eq!(set.remote.calls().len(), 3);
    set.up();
    advance(Duration::from_secs(1)).await;
    assert_eq!(set.asked.pass(&store, "a", 100).await, 10);
}

/// The second store may be remote, too, if it has a failure policy.
#[tokio::test(start_paused = true)]
async fn a_store_may_fall_back_to_another_remote_store() {
    let (first, second) = (Bucket::new(), Bucket::new());
    let asked = Asked::of(TokenBucket::per_hour(10));
    let slow = Fault::Slow(Duration::from_millis(5));
    second.usually(slow);
    let store = first
        .clone()
        .fall_back_to(second.clone().fail_closed())
        .share(1, 2);
    first.usually(DOWN);
    assert_eq!(asked.pass(&store, "a", 20).await, 5);
    assert_eq!(asked.look(&store, "a").await.unwrap().limit(), Some(5));
    let decision = asked.acquire(&store, "b", 2).await.unwrap();
    let settlement = asked.settlement("b", &decision, 0);
    assert!(store.settle(vec![settlement]).await.is_ok());
    assert_eq!(asked.look(&store, "b").await.unwrap().remaining(), Some(5));
    assert!(store.reset(&asked.policy, &"b".into()).await.is_ok());
    assert_eq!(second.count(Op::Reset), 1);
    second.usually(DOWN);
    assert!(asked.acquire(&store, "c", 1).await.unwrap().is_undecided());
    first.usually(Fault::None);
    second.usually(slow);
    assert_eq!(asked.pass(&store, "a", 20).await, 10);
    assert_eq!((first.running(), second.running()), (0, 0));
}

/// Dropped at any point, in either store.
#[tokio::test(start_paused = true)]
async fn a_dropped_call_is_charged_at_most_once_in_each_store() {
    let asked = Asked::of(TokenBucket::per_hour(10));
    for polls in 0..4 {
        let (first, second) = (Bucket::new(), Bucket::new());
        let closed = second.clone().fail_closed();
        let store = first.clone().fall_back_to(closed).share(1, 2);
        first.usually(Fault::Lossy(Kind::Timeout));
        second.usually(Fault::Slow(Duration::from_millis(10)));
        let mut call = Box::pin(store.acquire(&[asked.ask("a", 1)]).into_future());
        let mut cx = Context::from_waker(Waker::noop());
        let is_ready = (0..polls).any(|_| call.as_mut().poll(&mut cx).is_ready());
        assert!(!is_ready);
        drop(call);
        assert_eq!((first.running(), second.running()), (0, 0));
        assert_eq!(first.dropped() + second.dropped(), 1, "after {polls}");
        second.usually(Fault::None);
        first.usually(DOWN);
        assert_eq!(asked.pass(&store, "a", 20).await, 5);
        first.usually(Fault::None);
        let left = asked.pass(&store, "a", 20).await;
        assert_eq!(left, if polls == 0 { 10 } else { 9 });
    }
}
