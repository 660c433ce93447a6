//! `.fall_back_to(…)`: deciding here while a store elsewhere fails.
#![allow(unreachable_pub, reason = "items of a test module")]

use std::time::Duration;

use tokio::time::{Instant, advance};
use tollgate::{
    AnyRule, Cost, Decision, TokenBucket, Verdict,
    clock::TokioClock,
    key::Key,
    store::{Ask, CircuitBreaker, Decisions, FallBackTo, Local, Settlement, Store, StoreExt},
};

use crate::fakes::{Asked, Bucket, Fault, Kind, Op, Remote, at_once, local, only};

pub type Falling = FallBackTo<Bucket, Local<TokenBucket, TokioClock>, TokenBucket>;

pub struct Set {
    pub remote: Bucket,
    pub local: Local<TokenBucket, TokioClock>,
    pub store: Falling,
    pub asked: Asked,
}

/// A bucket of ten an hour, of which this node has half.
pub fn set() -> Set {
    set_with(65_536, 16)
}

pub fn set_with(capacity: usize, per_call: usize) -> Set {
    let (remote, local) = (Bucket::new(), local());
    let builder = remote.clone().fall_back_to(local.clone());
    let store = builder.capacity(capacity).per_call(per_call).share(1, 2);
    Set {
        remote,
        local,
        store,
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

    /// What the remote store would admit of a key now.
    pub fn there(&self, key: impl Into<Key>) -> u64 {
        let look = self
            .remote
            .local
            .look(&self.asked.policy, &self.asked.rule, &key.into());
        look.remaining().unwrap()
    }

    /// All that was settled there: keys and units, in order.
    pub fn settled(&self) -> Vec<(Key, u64)> {
        let arrived = self.remote.arrived().into_iter().flatten();
        arrived
            .map(|arrived| {
                assert_eq!(arrived.cost, 0);
                (arrived.key, arrived.actual)
            })
            .collect()
    }
}

#[tokio::test(start_paused = true)]
async fn while_the_store_answers_nothing_is_decided_here() {
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
    assert_eq!(
        (store.failures(), store.decided(), store.owing()),
        (0, 0, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn while_it_fails_this_nodes_share_passes_whatever_the_failure() {
    // Contention is no failure: see there.
    for kind in [Kind::Timeout, Kind::Unavailable, Kind::Other] {
        for fault in [Fault::Fails(kind), Fault::FailsAtOnce(kind)] {
            let set = set();
            set.remote.usually(fault);
            assert_eq!(set.pass("a", 20).await, 5);
            let refusal = set.asked.acquire(&set.store, "a", 1).await.unwrap();
            // It is told by the share: five an hour.
            assert_eq!(refusal.verdict(), Verdict::Refuse);
            assert_eq!(refusal.limit(), Some(5));
            assert_eq!(refusal.retry_after(), Some(Duration::from_secs(720)));
            let look = set.asked.look(&set.store, "b").await.unwrap();
            assert_eq!((look.remaining(), { look }.take_charge()), (Some(5), None));
            assert_eq!(set.pass("b", 3).await, 3);
            advance(Duration::from_secs(720)).await;
            assert_eq!(set.pass("a", 20).await, 1);
            assert_eq!((set.store.owing(), set.store.settled()), (2, 0));
            assert_eq!(set.store.decided(), 20 + 1 + 3 + 20);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn when_it_answers_again_there_is_no_fresh_burst() {
    let set = set();
    set.down();
    assert_eq!(set.pass("a", 20).await, 5);
    set.up();
    // The bucket there is full, but five have passed here.
    assert_eq!(set.there("a"), 10);
    assert_eq!(set.pass("a", 20).await, 5);
    assert_eq!(set.settled(), [("a".into(), 5)]);
    let calls = set.remote.calls();
    let looks = calls.iter().position(|op| *op == Op::Settle).unwrap();
    assert_eq!(
        calls[looks - 1..looks + 2],
        [Op::Look, Op::Settle, Op::Acquire]
    );
    let Set { store, .. } = &set;
    assert_eq!((store.owing(), store.settled(), store.lost()), (0, 5, 0));
    // Another failure fills nothing again.
    set.down();
    assert_eq!(set.pass("a", 20).await, 0);
    assert_eq!(set.store.owing(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_reset_forgets_in_both_stores_and_what_is_owed() {
    let set = set();
    assert_eq!(set.pass("a", 10).await, 10);
    set.down();
    assert_eq!(set.pass("a", 10).await, 5);
    let reset = async || {
        let key = Key::from("a");
        let done = Store::<TokenBucket>::reset(&set.store, &set.asked.policy, &key).await;
        assert!(done.is_ok());
    };
    let failures = set.store.failures();
    reset().await;
    assert_eq!((set.store.owing(), set.store.failures()), (0, failures + 1));
    assert_eq!(set.pass("a", 10).await, 5);
    for fault in [Fault::None, Fault::AtOnce] {
        set.remote.usually(fault);
        reset().await;
        assert_eq!((set.store.owing(), set.there("a")), (0, 10));
        assert!(set.local.is_empty());
        assert_eq!(set.pass("a", 10).await, 10);
    }
}

#[tokio::test(start_paused = true)]
async fn a_settlement_goes_to_the_store_or_is_made_here() {
    let set = set();
    let settle = async |decision: &Decision, actual| {
        let settlement = set.asked.settlement("a", decision, actual);
        assert!(set.store.settle(vec![settlement]).await.is_ok());
    };
    let acquire = async |units| set.asked.acquire(&set.store, "a", units).await.unwrap();
    for fault in [Fault::None, Fault::AtOnce] {
        set.remote.usually(fault);
        let decision = acquire(4).await;
        settle(&decision, 0).await;
        assert_eq!(set.there("a"), 10);
    }
    for fault in [DOWN, Fault::FailsAtOnce(Kind::Other)] {
        set.remote.usually(fault);
        let decision = acquire(4).await;
        // Less: it comes back here, and is not owed.
        settle(&decision, 1).await;
        assert_eq!(
            set.asked.look(&set.store, "a").await.unwrap().remaining(),
            Some(4)
        );
        settle(&decision, 1).await;
        assert_eq!(
            set.asked.look(&set.store, "a").await.unwrap().remaining(),
            Some(5)
        );
        assert_eq!(set.store.owing(), 0);
        // More: it is taken here, and owed.
        let decision = acquire(1).await;
        settle(&decision, 3).await;
        assert_eq!(
            set.asked.look(&set.store, "a").await.unwrap().remaining(),
            Some(2)
        );
        set.up();
        assert!(acquire(1).await.is_admitted());
        assert_eq!(set.there("a"), 6);
        let key = Key::from("a");
        let done = Store::<TokenBucket>::reset(&set.store, &set.asked.policy, &key).await;
        assert!(done.is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn several_asks_are_decided_together_here_too() {
    let set = set();
    let both = |units| [set.asked.ask("a", units), set.asked.ask("b", 1)];
    set.down();
    let first = set.store.acquire(&both(4)).await.unwrap();
    assert!(first.is_admitted());
    let second = set.store.acquire(&both(2)).await.unwrap();
    assert!(!second.is_admitted());
    assert_eq!(second.as_slice()[1].remaining(), Some(4));
    assert_eq!(set.store.owing(), 2);
    set.up();
    let third = set.store.acquire(&both(6)).await.unwrap();
    assert!(third.is_admitted());
    let mut settled = set.settled();
    settled.sort_by_key(|(_, units)| *units);
    assert_eq!(settled, [("b".into(), 1), ("a".into(), 4)]);
    assert_eq!((set.there("a"), set.there("b")), (0, 8));
}

#[tokio::test(start_paused = true)]
async fn a_rule_without_a_share_is_turned_away() {
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
    // One of two has none: neither is spent.
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
    assert_eq!(
        (store.turned_away(), store.decided(), store.owing()),
        (5, 0, 0)
    );
    let ask = [Ask::new(&asked.policy, &nine, "b".into(), Cost::ONE)];
    let decision = only(store.acquire(&ask).await.unwrap());
    assert_eq!(decision.remaining(), Some(2));
    // What cannot be settled here does no harm.
    let charge = { decision }.take_charge().unwrap();
    let settlement = Settlement::new(&asked.policy, &asked.rule, "a".into(), charge, 0).unwrap();
    assert!(store.settle(vec![settlement]).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_function_says_what_this_node_may_admit() {
    let (remote, asked) = (Bucket::new(), Asked::of(TokenBucket::per_hour(10)));
    let builder = remote.clone().fall_back_to(local());
    let store = builder.rule(|rule: &TokenBucket| rule.try_burst(2).ok());
    remote.usually(DOWN);
    assert_eq!(asked.pass(&store, "a", 10).await, 2);
    remote.usually(Fault::None);
    assert_eq!(asked.pass(&store, "a", 10).await, 8);
}

#[tokio::test(start_paused = true)]
async fn rules_of_every_type_have_shares() {
    let remote = Remote::<AnyRule, TokioClock>::new();
    let store = remote.clone().fall_back_to(local()).share(1, 5);
    remote.usually(DOWN);
    let rule: AnyRule = "token-bucket 10/1h".parse().unwrap();
    assert_eq!(Asked::of(rule).pass(&store, "a", 9).await, 2);
    let rule: AnyRule = "token-bucket 10/1h & token-bucket 20/1d".parse().unwrap();
    let decision = Asked::of(rule).acquire(&store, "b", 1).await.unwrap();
    assert!(decision.is_undecided());
    let remote = Remote::<(TokenBucket, TokenBucket), TokioClock>::new();
    let store = remote.clone().fall_back_to(local()).share(1, 5);
    remote.usually(DOWN);
    let pair = (TokenBucket::per_hour(10), TokenBucket::per_minute(15));
    assert_eq!(Asked::of(pair).pass(&store, "a", 9).await, 2);
}

#[test]
fn a_share_that_cannot_be_says_what_to_write() {
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

/// With a breaker inside, an outage costs no waiting, and each key's own call is a probe at most.
#[tokio::test(start_paused = true)]
async fn behind_a_breaker_an_outage_costs_no_waiting() {
    let set = set();
    let clock = TokioClock::new();
    let breaker = CircuitBreaker::new().failures(3).clock(clock);
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
    assert_eq!(set.asked.pass(&store, "a", 100).await, 5);
    assert_eq!((set.settled(), store.owing()), (vec![("a".into(), 5)], 0));
}

/// The second store may be far away, too, as long as it says what happens when it fails itself.
#[tokio::test(start_paused = true)]
async fn a_store_may_fall_back_to_another_one_elsewhere() {
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
    // What it remembers cannot be asked in passing: all that was admitted is settled.
    first.usually(Fault::None);
    second.usually(slow);
    advance(Duration::from_secs(720)).await;
    assert_eq!(asked.pass(&store, "a", 20).await, 5);
    assert_eq!(
        (
            store.settled(),
            store.owing(),
            first.running(),
            second.running()
        ),
        (5, 0, 0, 0)
    );
}
