//! A second algorithm and a second store, written only with the public traits, in all combinations
//! with the built-in ones.

use std::{convert::Infallible, fmt, sync::Arc, sync::atomic::Ordering, time::Duration};

use crate::common::custom::{PerSecond, Remote, SECOND};
use http::{Request, Response};
use proptest::prelude::*;
use tollgate::{
    AnyRule, Charge, Cost, Decision, Policy, Quota, RateLimitLayer, Timestamp, TokenBucket,
    algorithm::{Algorithm, Codec, Step},
    key::{Header, Key},
    respond::Http,
    store::{
        Local, LocalBuilder, NeverFails, Store, StoreExt,
        driver::{Ask, Check, Settlement},
    },
    testing::conformance::{Law, Suite},
    time::{Clock, ManualClock},
};
use tower::{Layer, Service, ServiceExt, service_fn};

type AnyState = <AnyRule as Algorithm>::State;

fn cost(units: u64) -> Cost {
    Cost::new(units).unwrap()
}

fn still<R: Algorithm>() -> Local<R, ManualClock> {
    LocalBuilder::new().clock(ManualClock::default()).build()
}

/// Checks all laws but one, because the time of `Remote` stands still.
async fn conforms<R, S>(store: S, rules: [R; 2])
where
    R: Algorithm,
    S: Store<R, Answer: Send, Error: fmt::Debug + Send> + Clone + Send + Sync + 'static,
{
    let suite = Suite::with_rules(store, rules)
        .spawn(tokio::spawn)
        .without(Law::Wait)
        .timelines(support::timelines());
    suite.run().await.unwrap();
}

/// Checks each rule on the second store, alone and in all wrappers. `Local` is checked in
/// `tests/stores/conformance`.
async fn conform<R>(rules: [R; 2])
where
    R: Algorithm,
{
    let store = Remote::<R>::open;
    conforms(store(), rules.clone()).await;
    conforms(store().boxed(), rules.clone()).await;
    conforms(store().fail_closed(), rules.clone()).await;
    conforms(Arc::new(store()).boxed().fail_open().boxed(), rules).await;
}

#[tokio::test]
async fn every_rule_runs_on_every_store() {
    let (slow, slower) = (TokenBucket::per_hour(3), TokenBucket::per_day(7));
    let window = PerSecond::new(3);
    conform([slow, slower]).await;
    let texts = ["token-bucket 3/1h", "token-bucket 9/1h & token-bucket 4/1d"];
    conform(texts.map(|text| text.parse::<AnyRule>().unwrap())).await;
    conform([(slow, window.clone()), (slower, window.clone())]).await;
    conform([slow, slower].map(|bucket| (window.clone(), (bucket, TokenBucket::per_hour(100)))))
        .await;
}

/// Puts the layer in front of a service, generic over rule and store, as another library may.
fn limited<R, S>(
    rule: R,
    store: S,
) -> impl Service<Request<()>, Response = Response<String>, Error = Infallible> + Clone
where
    R: Algorithm,
    S: Store<R, Error: NeverFails> + Clone + Send + Sync + 'static,
{
    let hello = service_fn(async |_: Request<()>| Ok(Response::new("hello".to_owned())));
    RateLimitLayer::new(rule)
        .store(store)
        .key(Header::new("x-api-key"))
        .respond(Http::new())
        .layer(hello)
}

async fn get<S>(service: &S, key: &str) -> Response<String>
where
    S: Service<Request<()>, Response = Response<String>, Error = Infallible> + Clone,
{
    let request = Request::builder()
        .header("x-api-key", key)
        .body(())
        .unwrap();
    service
        .clone()
        .oneshot(request)
        .await
        .unwrap_or_else(|never| match never {})
}

async fn statuses<S>(service: &S, key: &str, count: usize) -> Vec<u16>
where
    S: Service<Request<()>, Response = Response<String>, Error = Infallible> + Clone,
{
    let mut statuses = Vec::new();
    for _ in 0..count {
        statuses.push(get(service, key).await.status().as_u16());
    }
    statuses
}

#[tokio::test]
async fn a_second_algorithm_behind_the_layer() {
    let clock = ManualClock::default();
    let store = LocalBuilder::new().clock(clock.clone()).build();
    let service = limited(PerSecond::new(2), store);
    for _ in 0..3 {
        assert_eq!(statuses(&service, "a", 4).await, [200, 200, 429, 429]);
        assert_eq!(statuses(&service, "b", 1).await, [200]);
        let refused = get(&service, "a").await;
        assert_eq!(refused.headers()["retry-after"], "1");
        assert_eq!(refused.headers()["ratelimit"], "\"default\";r=0;t=1");
        assert_eq!(refused.headers()["ratelimit-policy"], "\"default\";q=2;w=1");
        clock.advance(Duration::from_secs(1));
    }
}

#[tokio::test]
async fn a_pair_of_both_algorithms_behind_the_layer() {
    let clock = ManualClock::default();
    let store = LocalBuilder::new().clock(clock.clone()).build();
    let service = limited((TokenBucket::per_minute(5), PerSecond::new(2)), store);
    assert_eq!(statuses(&service, "a", 3).await, [200, 200, 429]);
    assert_eq!(get(&service, "a").await.headers()["retry-after"], "1");
    clock.advance(Duration::from_secs(1));
    assert_eq!(statuses(&service, "a", 3).await, [200, 200, 429]);
    clock.advance(Duration::from_secs(1));
    assert_eq!(statuses(&service, "a", 3).await, [200, 429, 429]);
    // Now the bucket refuses: a token every 12 seconds, two of which have passed.
    assert_eq!(get(&service, "a").await.headers()["retry-after"], "10");
}

/// `r` units in every `t` seconds must stay within the rates of both rules.
#[tokio::test]
async fn a_pair_promises_no_more_than_its_slower_rule_sustains() {
    let (fast, slow) = (TokenBucket::per_second(10), TokenBucket::per_hour(10));
    for service in [
        limited((fast, slow), still()),
        limited((slow, fast), still()),
    ] {
        for _ in 0..9 {
            let answer = get(&service, "a").await;
            let field = answer.headers()["ratelimit"].to_str().unwrap();
            let number = |name: &str| -> u64 {
                let value = field.split(';').find_map(|part| part.strip_prefix(name));
                value
                    .and_then(|value| value.parse().ok())
                    .unwrap_or_else(|| panic!("no {name} in {field}"))
            };
            assert!(number("r=") * 3600 <= number("t=") * 10, "{field}");
        }
    }
}

/// A pair that delays calls to the next second, up to the contents of its bucket.
#[cfg(feature = "tokio")]
#[tokio::test(start_paused = true)]
async fn a_pair_delays_like_its_delaying_rule() {
    let store = LocalBuilder::new()
        .clock(tollgate::time::TokioClock::new())
        .build();
    let service = limited((PerSecond::waiting(1), TokenBucket::per_day(2)), store);
    let begun = tokio::time::Instant::now();
    assert_eq!(statuses(&service, "a", 1).await, [200]);
    assert_eq!(begun.elapsed(), Duration::ZERO);
    assert_eq!(statuses(&service, "a", 1).await, [200]);
    let waited = begun.elapsed();
    assert!(
        waited > Duration::ZERO && waited <= Duration::from_millis(1002),
        "{waited:?}"
    );
    assert_eq!(statuses(&service, "a", 1).await, [429]);
}

async fn exercise_over_http<R, S>(rule: R, store: S, remote: &Remote<R>)
where
    R: Algorithm,
    S: Store<R, Error: NeverFails> + Clone + Send + Sync + 'static,
{
    let service = limited(rule, store);
    assert_eq!(statuses(&service, "a", 4).await, [200, 200, 200, 429]);
    assert_eq!(statuses(&service, "b", 1).await, [200]);
    assert_eq!(remote.keys(), 2);
    remote.failing.store(true, Ordering::SeqCst);
    let answer = get(&service, "a").await;
    assert_eq!(answer.status(), 503);
    assert!(!answer.headers().contains_key("ratelimit"));
    assert!(answer.body().contains("#temporary-reduced-capacity"));
    remote.failing.store(false, Ordering::SeqCst);
    assert_eq!(statuses(&service, "a", 1).await, [429]);
    remote.now.fetch_add(SECOND, Ordering::SeqCst);
    assert_eq!(statuses(&service, "a", 1).await, [200]);
}

#[tokio::test]
async fn a_second_store_behind_the_layer() {
    let bucket = TokenBucket::per_second(3);
    let remote = Remote::open();
    exercise_over_http(bucket, remote.clone().fail_closed(), &remote).await;
    let remote = Remote::open();
    exercise_over_http(bucket, remote.clone().fail_closed().boxed(), &remote).await;
    let remote = Remote::open();
    let rule: AnyRule = "token-bucket 3/1s".parse().unwrap();
    exercise_over_http(rule, remote.clone().boxed().fail_closed(), &remote).await;
    let remote = Remote::open();
    exercise_over_http(
        PerSecond::new(3),
        Arc::new(remote.clone().fail_closed()),
        &remote,
    )
    .await;
    let remote = Remote::open();
    let pair = (bucket, PerSecond::new(3));
    exercise_over_http(pair, remote.clone().fail_closed(), &remote).await;
}

/// With a store selected by configuration, all stores have one type.
#[tokio::test]
async fn stores_of_several_kinds_in_one_list() {
    let bucket = TokenBucket::per_second(3);
    let stores = [
        still().boxed(),
        Remote::open().fail_closed().boxed(),
        still().fail_open().boxed(),
    ];
    for store in stores {
        assert_eq!(
            statuses(&limited(bucket, store), "a", 4).await,
            [200, 200, 200, 429]
        );
    }
}

/// One event of a key.
#[derive(Clone, Debug)]
enum Event {
    Pass(u64),
    Call(u64),
    /// Settles one of the admitted calls, by its index among them.
    Settle(prop::sample::Index, u64),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        3 => (0..3 * SECOND).prop_map(Event::Pass),
        1 => (0..3u64).prop_map(|seconds| Event::Pass(seconds * SECOND)),
        8 => (1..12u64).prop_map(Event::Call),
        1 => (any::<prop::sample::Index>(), 0..12u64).prop_map(|(which, actual)| Event::Settle(which, actual)),
    ];
    prop::collection::vec(event, 1..60)
}

fn bucket() -> impl Strategy<Value = TokenBucket> {
    (1..20u64, 1..5_000u64, 1..12u64).prop_map(|(amount, millis, burst)| {
        TokenBucket::new(Quota::new(amount, Duration::from_millis(millis))).burst(burst)
    })
}

fn window() -> impl Strategy<Value = PerSecond> {
    (1..12u64).prop_map(PerSecond::new)
}

/// Two rules with separate states, both charged or neither. Decides by trying on copies.
struct Apart<A: Algorithm, B: Algorithm> {
    rules: (A, B),
    states: (Option<A::State>, Option<B::State>),
}

impl<A: Algorithm, B: Algorithm> Apart<A, B> {
    /// Returns the decision of each rule, as if it were alone.
    fn call(&mut self, now: Timestamp, units: u64) -> (Decision, Decision) {
        let mut tried = self.states.clone();
        let a = self.rules.0.step(&mut tried.0, now, cost(units)).decision();
        let b = self.rules.1.step(&mut tried.1, now, cost(units)).decision();
        if a.is_admitted() && b.is_admitted() {
            self.states = tried;
        }
        (a, b)
    }

    /// Returns the largest cost that both rules admit.
    fn remaining(&self, now: Timestamp) -> u64 {
        let a = self.rules.0.look(self.states.0.as_ref(), now).remaining();
        let b = self.rules.1.look(self.states.1.as_ref(), now).remaining();
        a.unwrap().min(b.unwrap())
    }

    fn settle(&mut self, charge: &Charge, now: Timestamp, actual: u64) {
        self.rules.0.settle(&mut self.states.0, charge, now, actual);
        self.rules.1.settle(&mut self.states.1, charge, now, actual);
    }
}

/// Runs a pair beside its parts, which must agree at each event.
fn together_as_apart<A, B>(a: A, b: B, events: Vec<Event>) -> Result<(), TestCaseError>
where
    A: Algorithm,
    B: Algorithm,
{
    let pair = (a.clone(), b.clone());
    let mut apart = Apart {
        rules: (a, b),
        states: (None, None),
    };
    let mut state = None;
    let mut now = Timestamp::from_nanos(1_800_000_000 * SECOND);
    let mut charges = Vec::new();
    for event in events {
        match event {
            Event::Pass(nanos) => now = now.saturating_add(Duration::from_nanos(nanos)),
            Event::Settle(which, actual) if !charges.is_empty() => {
                let charge = charges.swap_remove(which.index(charges.len()));
                pair.settle(&mut state, &charge, now, actual);
                apart.settle(&charge, now, actual);
            }
            Event::Settle(..) => {}
            Event::Call(units) => {
                let before = state.clone();
                let step = pair.step(&mut state, now, cost(units));
                let decision = step.decision();
                let (a, b) = apart.call(now, units);
                let passes = a.is_admitted() && b.is_admitted();
                prop_assert_eq!(
                    decision.is_admitted(),
                    passes,
                    "{:?} of {:?} and {:?}",
                    decision,
                    a,
                    b
                );
                prop_assert_eq!(matches!(step, Step::Wrote(_)), passes);
                prop_assert_eq!(decision.remaining(), Some(apart.remaining(now)));
                prop_assert_eq!(
                    { decision }.take_charge().map(|charge| charge.cost),
                    passes.then_some(units)
                );
                charges.extend({ decision }.take_charge());
                if !passes {
                    check_retry(&pair, &before, now, units, decision.retry_after())?;
                }
            }
        }
        let look = pair.look(state.as_ref(), now);
        prop_assert_eq!(look.remaining(), Some(apart.remaining(now)));
        prop_assert_eq!(look.is_admitted(), apart.remaining(now) > 0);
    }
    Ok(())
}

/// Checks that a wait is sufficient, and that nothing less is.
fn check_retry<R: Algorithm>(
    rule: &R,
    state: &Option<R::State>,
    now: Timestamp,
    units: u64,
    wait: Option<Duration>,
) -> Result<(), TestCaseError> {
    let passes = |wait: Duration| {
        let mut state = state.clone();
        rule.step(&mut state, now.saturating_add(wait), cost(units))
            .decision()
            .is_admitted()
    };
    match wait {
        Some(wait) => {
            prop_assert!(passes(wait), "{units} do not pass after {wait:?}");
            prop_assert!(
                !passes(wait - Duration::from_nanos(1)),
                "{units} pass before {wait:?}"
            );
        }
        None => prop_assert!(
            !passes(Duration::from_secs(1_000_000_000)),
            "{units} pass although the wait is infinite"
        ),
    }
    Ok(())
}

/// Checks that the wait until more remains is sufficient and minimal, and that it is zero if
/// nothing is missing.
fn check_more<R: Algorithm>(
    rule: &R,
    state: &Option<R::State>,
    look: &Decision,
) -> Result<(), TestCaseError> {
    let remaining = |at| rule.look(state.as_ref(), at).remaining();
    let (now, wait) = (look.at(), look.more_after());
    if wait.is_zero() {
        let late = now.saturating_add(Duration::from_secs(1_000_000));
        prop_assert!(
            remaining(late) <= look.remaining(),
            "it grows after all: {look:?}"
        );
        return Ok(());
    }
    let more = remaining(now.saturating_add(wait));
    prop_assert!(
        more > look.remaining(),
        "still {more:?} after {wait:?}: {look:?}"
    );
    let before = remaining(now.saturating_add(wait - Duration::from_nanos(1)));
    prop_assert!(
        before <= look.remaining(),
        "{before:?} before {wait:?}: {look:?}"
    );
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_pair_decides_as_its_parts(a in bucket(), b in window(), events in events()) {
        together_as_apart(a, b.clone(), events.clone())?;
        together_as_apart(b, a, events)?;
    }

    #[test]
    fn a_pair_of_buckets_decides_as_its_parts(a in bucket(), b in bucket(), events in events()) {
        together_as_apart(a, b, events)?;
    }

    #[test]
    fn a_nested_pair_decides_as_its_parts(a in bucket(), b in bucket(), c in window(), events in events()) {
        together_as_apart((a, c), b, events)?;
    }

    /// `limit` is the largest cost that can ever pass.
    #[test]
    fn the_limit_of_a_pair_is_its_largest_possible_cost(a in bucket(), b in bucket(), units in 1..12u64) {
        let pair = (a, b);
        let now = Timestamp::from_nanos(1_800_000_000 * SECOND);
        let look = pair.look(None, now);
        prop_assert_eq!(look.limit(), Some(a.capacity().min(b.capacity())), "{:?}", look);
        let step = pair.step(&mut None, now, cost(units)).decision();
        prop_assert_eq!(step.is_admitted(), units <= look.limit().unwrap());
        prop_assert_eq!(step.limit(), look.limit());
    }

    /// `more_after` is the shortest wait after which more remains.
    #[test]
    fn more_after_of_a_pair_is_exact(a in bucket(), b in bucket(), events in events()) {
        let pair = (a, b);
        let mut state = None;
        let mut now = Timestamp::from_nanos(1_800_000_000 * SECOND);
        for event in events {
            match event {
                Event::Pass(nanos) => now = now.saturating_add(Duration::from_nanos(nanos)),
                Event::Call(units) => {
                    pair.step(&mut state, now, cost(units));
                }
                Event::Settle(..) => {}
            }
            check_more(&pair, &state, &pair.look(state.as_ref(), now))?;
        }
    }

    /// Compares two stores with a rule each with one store of the pair.
    #[test]
    fn a_store_of_pairs_equals_two_stores(a in bucket(), b in window(), events in events()) {
        let clock = ManualClock::default();
        let builder = || LocalBuilder::new().clock(clock.clone());
        let both: Local<(TokenBucket, PerSecond), _> = builder().build();
        let (left, right) = (builder().build(), builder().build());
        let (policy, pair) = (Policy::default(), (a, b.clone()));
        for event in events {
            match event {
                Event::Pass(nanos) => clock.advance(Duration::from_nanos(nanos)),
                Event::Settle(..) => {}
                Event::Call(units) => {
                    let decision = both.decide(&Ask::new(&policy, &pair, Key::GLOBAL, cost(units)));
                    let alone = left.decide(&Ask::new(&policy, &a, Key::GLOBAL, cost(units)));
                    let other = right.decide(&Ask::new(&policy, &b, Key::GLOBAL, cost(units)));
                    prop_assert_eq!(decision.is_admitted(), alone.is_admitted() && other.is_admitted());
                    // A cost that only one of them charged is refunded at once.
                    if !decision.is_admitted() {
                        if let Some(charge) = { alone }.take_charge() {
                            settle(&left, &policy, &a, charge);
                        }
                        if let Some(charge) = { other }.take_charge() {
                            settle(&right, &policy, &b, charge);
                        }
                    }
                    let remaining = [
                        left.look(&policy, &a, &Key::GLOBAL).remaining(),
                        right.look(&policy, &b, &Key::GLOBAL).remaining(),
                    ];
                    prop_assert_eq!(decision.remaining(), remaining.into_iter().min().flatten());
                }
            }
        }
    }

    /// Both rules in one text equal two limits with a rule each, for a client.
    #[test]
    fn a_rule_of_two_equals_two_limits(a in bucket(), b in bucket(), events in events()) {
        let clock = ManualClock::default();
        let builder = || LocalBuilder::new().clock(clock.clone());
        let (one, two): (Local<AnyRule, _>, Local<AnyRule, _>) = (builder().build(), builder().build());
        let all: AnyRule = format!("{a} & {b}").parse().unwrap();
        let (a, b) = (AnyRule::TokenBucket(a), AnyRule::TokenBucket(b));
        let (policy, first, second) = (Policy::default(), Policy::new("first"), Policy::new("second"));
        for event in events {
            match event {
                Event::Pass(nanos) => clock.advance(Duration::from_nanos(nanos)),
                Event::Settle(..) => {}
                Event::Call(units) => {
                    let ask = |policy, rule| Ask::new(policy, rule, Key::GLOBAL, cost(units));
                    let decision = one.decide(&ask(&policy, &all));
                    let Check::Ready(Ok(decisions)) = two.acquire(&[ask(&first, &a), ask(&second, &b)]) else {
                        panic!("memory answers at once");
                    };
                    prop_assert_eq!(decision.is_admitted(), decisions.is_admitted());
                    let each = decisions.as_slice().iter();
                    prop_assert_eq!(decision.remaining(), each.clone().filter_map(Decision::remaining).min());
                    prop_assert_eq!(decision.reset_after(), each.clone().map(Decision::reset_after).max().unwrap());
                    if !decision.is_admitted() {
                        let waits: Option<Vec<_>> = each.map(Decision::retry_after).collect();
                        let longest = waits.and_then(|waits| waits.into_iter().max());
                        prop_assert_eq!(decision.retry_after(), longest);
                    }
                    prop_assert_eq!(decision.at(), clock.now());
                }
            }
        }
    }
}

/// A refusal under fewer rules leaves the states of all of them. A refusal under more rules adds no
/// state.
#[test]
fn a_refusal_by_another_number_of_rules_leaves_the_state_alone() {
    let rule = |text: &str| text.parse::<AnyRule>().unwrap();
    let three = rule("token-bucket 1/h & token-bucket 1/h & fixed-window 1/h");
    let others = [
        rule("token-bucket 1/h & token-bucket 1/h"),
        rule("token-bucket 1/h & token-bucket 1/h & token-bucket 1/h & token-bucket 1/h"),
    ];
    let (now, mut state) = (Timestamp::from_nanos(1 << 60), None);
    assert!(
        three
            .step(&mut state, now, Cost::ONE)
            .decision()
            .is_admitted()
    );
    let bytes = |state: &Option<AnyState>| state.as_ref().map(Codec::to_bytes);
    let before = bytes(&state);
    for other in others {
        let step = other.step(&mut state, now, Cost::ONE);
        assert!(matches!(step, Step::Kept(_)), "{other}: {step:?}");
        assert_eq!(bytes(&state), before, "{other}");
    }
}

fn settle<R: Algorithm>(store: &Local<R, ManualClock>, policy: &Policy, rule: &R, charge: Charge) {
    let back = Settlement::new(policy, rule, Key::GLOBAL, charge, 0).unwrap();
    let Check::Ready(Ok(())) = Store::settle(store, vec![back]) else {
        panic!("memory settles at once");
    };
}
