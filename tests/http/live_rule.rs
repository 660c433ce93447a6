//! Rules that change while layers and limiters decide by them.

use std::{
    any::Any,
    convert::Infallible,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use http::{Request, Response};
use proptest::prelude::*;
use tollgate::{
    AnyRule, ChargeHandle, Cost, FixedWindow, Limit, Limiter, LiveRule, Policy,
    prelude::*,
    store::{
        Backend, LocalBuilder, OnFailure, Store,
        driver::CasStore,
        driver::{Ask, Check, Decisions, Never, Settlement},
    },
    time::ManualClock,
};
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::common::memory::{Memory, Ways, driver};

fn rule(text: &str) -> AnyRule {
    text.parse().unwrap()
}

fn request(user: &str) -> Request<()> {
    Request::builder().header("x-user", user).body(()).unwrap()
}

/// Sends requests of a user until one is refused; returns how many are admitted, 100 at most.
async fn admitted<Svc>(service: &Svc, user: &str) -> u64
where
    Svc: Service<Request<()>, Response = Response<String>, Error = Infallible> + Clone,
{
    for admitted in 0..100 {
        let response = service.clone().oneshot(request(user)).await.unwrap();
        if response.status() != 200 {
            return admitted;
        }
    }
    100
}

async fn hello(_: Request<()>) -> Result<Response<String>, Infallible> {
    Ok(Response::new(String::new()))
}

/// A store that accepts no rule with long states.
fn store() -> OnFailure<CasStore<Memory, AnyRule>> {
    driver(Memory::new(ManualClock::default(), Ways::default())).fail_closed()
}

const TOO_LONG: &str = "sliding-log 20000/1m";

#[tokio::test]
async fn a_layer_decides_by_the_current_rule() {
    let live = LiveRule::new(rule("token-bucket 2/1h"));
    let layer = RateLimitLayer::from(Limit::live(&live).key(Header::new("x-user")));
    let before = layer.layer(service_fn(hello));
    assert_eq!(admitted(&before, "alice").await, 2);
    live.set(rule("token-bucket 5/1h")).unwrap();
    assert_eq!(live.get(), rule("token-bucket 5/1h"));
    // A service that was made before, and one that is made after.
    assert_eq!(admitted(&before, "bob").await, 5);
    assert_eq!(admitted(&layer.layer(service_fn(hello)), "carol").await, 5);
    // Nobody gets a new allowance.
    assert_eq!(admitted(&before, "alice").await, 0);
    live.set(rule("token-bucket 1/1h")).unwrap();
    assert_eq!(admitted(&before, "dave").await, 1);
}

#[tokio::test]
async fn a_rule_for_the_request_comes_before_the_live_one() {
    let live = LiveRule::new(rule("token-bucket 1/1h"));
    let premium = |request: &Request<()>| {
        let is_premium = request.headers()["x-user"] == "premium";
        is_premium.then(|| rule("token-bucket 7/1h"))
    };
    let limit = Limit::live(&live).key(Header::new("x-user")).rule(premium);
    let service = RateLimitLayer::from(limit).layer(service_fn(hello));
    assert_eq!(admitted(&service, "premium").await, 7);
    live.set(rule("token-bucket 3/1h")).unwrap();
    assert_eq!(admitted(&service, "alice").await, 3);
}

#[tokio::test]
async fn pairs_and_lists_decide_by_the_current_rules() {
    let (first, second) = (
        LiveRule::new(rule("token-bucket 9/1h")),
        LiveRule::new(rule("token-bucket 9/1h")),
    );
    let limits = || {
        let key = || Header::new("x-user");
        let second = Limit::live(&second).named("second").key(key());
        (Limit::live(&first).key(key()), second)
    };
    let (a, b) = limits();
    let pair = RateLimitLayer::from(a).also(b).layer(service_fn(hello));
    let (a, b) = limits();
    let list = vec![a.boxed::<_, Response<String>>(), b.boxed()];
    let list = RateLimitLayer::list(list).unwrap().layer(service_fn(hello));
    first.set(rule("token-bucket 4/1h")).unwrap();
    assert_eq!(
        (
            admitted(&pair, "alice").await,
            admitted(&list, "alice").await
        ),
        (4, 4)
    );
    second.set(rule("token-bucket 2/1h")).unwrap();
    assert_eq!(
        (admitted(&pair, "bob").await, admitted(&list, "bob").await),
        (2, 2)
    );
}

#[tokio::test]
async fn a_charge_is_settled_by_the_rule_that_made_it() {
    let live = LiveRule::new(rule("token-bucket 10/1h"));
    let limit = Limit::live(&live)
        .cost(Cost::new(10).unwrap())
        .charge_handle();
    let layer = RateLimitLayer::from(limit);
    let changed = live.clone();
    let service = layer.layer(service_fn(move |mut request: Request<()>| {
        let handle = request.extensions_mut().remove::<ChargeHandle>().unwrap();
        // Of another kind, in the middle of the request: its states are others.
        changed.set(rule("fixed-window 10/1h")).unwrap();
        async move {
            handle.settle(3).unwrap().await;
            Ok::<_, Infallible>(Response::new(String::new()))
        }
    }));
    assert_eq!(
        service.oneshot(Request::new(())).await.unwrap().status(),
        200
    );
    let limiter = layer.limiter("default").unwrap();
    assert_eq!(limiter.look(Key::GLOBAL).at_once().remaining(), Some(10));
    live.set(rule("token-bucket 10/1h")).unwrap();
    assert_eq!(limiter.look(Key::GLOBAL).at_once().remaining(), Some(7));
}

#[test]
fn a_limiter_decides_by_the_current_rule() {
    let live = LiveRule::new(rule("token-bucket 10/1h"));
    let limiter = Limiter::live(Policy::new("jobs"), &live, Local::new());
    let check = |cost| limiter.check("alice", Cost::new(cost).unwrap()).at_once();
    let mut decision = check(10);
    live.set(rule("token-bucket 30/1h")).unwrap();
    assert_eq!(limiter.rule(), rule("token-bucket 30/1h"));
    assert_eq!(check(1).limit(), Some(30));
    let charge = decision.take_charge().unwrap();
    limiter.settle("alice", charge, 0).unwrap().at_once();
    assert_eq!(limiter.grant("alice", 100).at_once().remaining(), Some(30));
}

#[tokio::test(start_paused = true)]
async fn a_grant_has_one_rule_from_its_first_look_to_its_last() {
    let log = rule("sliding-log 10/1h");
    for other in ["sliding-log 10/1m", "fixed-window 10/1h"] {
        let live = LiveRule::new(log.clone());
        let delay = Some(Duration::from_millis(10));
        let ways = Ways {
            delay,
            ..Ways::default()
        };
        let store = driver(Memory::new(ManualClock::default(), ways)).fail_closed();
        let limiter = Limiter::live(Policy::new("jobs"), &live, store);
        for _ in 0..10 {
            assert!(limiter.check("alice", Cost::ONE).await.is_admitted());
        }
        let change = async {
            tokio::time::sleep(Duration::from_millis(5)).await;
            live.set(rule(other)).unwrap();
        };
        let (granted, ()) = tokio::join!(limiter.grant("alice", 5).into_future(), change);
        assert_eq!(granted.remaining(), Some(5), "{other}");
        live.set(log.clone()).unwrap();
        let left = limiter.look("alice").await.remaining();
        assert_eq!(left, Some(5), "{other}");
    }
}

#[test]
fn a_rule_that_does_not_fit_a_store_in_use_is_refused_when_it_is_set() {
    let uses: [(&str, fn(&LiveRule<AnyRule>) -> Box<dyn Send>); 5] = [
        ("of a layer", |live| {
            Box::new(RateLimitLayer::from(Limit::live(live)).store(store()))
        }),
        ("of a service", |live| {
            let layer = RateLimitLayer::from(Limit::live(live)).store(store());
            Box::new(layer.layer(()))
        }),
        ("of a further limit", |live| {
            let first = RateLimitLayer::new(rule("token-bucket 1/1h")).store(store());
            Box::new(first.also(Limit::live(live).named("second")).layer(()))
        }),
        ("of a list", |live| {
            let limits = vec![Limit::live(live).boxed::<Request<()>, Response<()>>()];
            Box::new(RateLimitLayer::list(limits).unwrap().store(store().boxed()))
        }),
        ("of a layer's limiter", |live| {
            let layer = RateLimitLayer::from(Limit::live(live)).store(store());
            Box::new(layer.limiter("default").unwrap())
        }),
    ];
    for (name, use_it) in uses {
        let live = LiveRule::new(rule("token-bucket 1/1h"));
        let user = use_it(&live);
        let error = live.set(rule(TOO_LONG)).unwrap_err().to_string();
        assert!(
            error.contains("KiB") && error.contains("expected"),
            "{name}: {error}"
        );
        assert_eq!(live.get(), rule("token-bucket 1/1h"), "{name}");
        live.set(rule("token-bucket 2/1h")).unwrap();
        // Nobody uses it any more.
        drop(user);
        live.set(rule(TOO_LONG)).unwrap();
        // And a user that comes later finds that it does not fit.
        let late = RateLimitLayer::from(Limit::live(&live)).try_store(store());
        assert!(late.is_err(), "{name}");
        assert!(
            Limiter::try_live(Policy::new("a"), &live, store()).is_err(),
            "{name}"
        );
    }
}

#[test]
fn a_store_that_a_layer_has_given_up_is_not_asked() {
    let live = LiveRule::new(rule("token-bucket 1/1h"));
    let layer = RateLimitLayer::from(Limit::live(&live)).store(store());
    let _layer = layer.store(Local::new());
    live.set(rule(TOO_LONG)).unwrap();
}

/// The last layer may go while a rule is set, and its store may do anything then.
#[test]
fn a_store_that_is_dropped_while_a_rule_is_set_may_set_one() {
    /// A store that drops its layer when it is asked about a rule, and sets one when it is dropped.
    #[derive(Clone)]
    struct Last {
        layer: Arc<Mutex<Option<Box<dyn Any + Send>>>>,
        _dropped: Arc<Dropped>,
    }
    struct Dropped(LiveRule<AnyRule>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.set(rule("token-bucket 3/1h")).unwrap();
        }
    }
    impl Backend for Last {
        type Error = Infallible;
    }
    impl Store<AnyRule> for Last {
        type Answer = Never<Result<Decisions, Infallible>>;
        type Done = Never<Result<(), Infallible>>;

        fn acquire(&self, _: &[Ask<'_, AnyRule>]) -> Check<Self::Answer> {
            unreachable!("no call")
        }

        fn look(&self, _: &[Ask<'_, AnyRule>]) -> Check<Self::Answer> {
            unreachable!("no call")
        }

        fn settle(&self, _: Vec<Settlement<'_, AnyRule>>) -> Check<Self::Done> {
            unreachable!("no call")
        }

        fn reset(&self, _: &Policy, _: &Key) -> Check<Self::Done> {
            unreachable!("no call")
        }

        fn fits(&self, _: &AnyRule) -> Result<(), tollgate::Error> {
            drop(self.layer.lock().unwrap().take());
            Ok(())
        }
    }
    let live = LiveRule::new(rule("token-bucket 1/1h"));
    let layer = Arc::new(Mutex::new(None));
    let store = Last {
        layer: layer.clone(),
        _dropped: Arc::new(Dropped(live.clone())),
    };
    let user = RateLimitLayer::from(Limit::live(&live)).store(store);
    *layer.lock().unwrap() = Some(Box::new(user));
    live.set(rule("token-bucket 2/1h")).unwrap();
    assert_eq!(live.get(), rule("token-bucket 3/1h"));
}

/// Calls while two rules take turns: each is decided by one of them, none by a mixture.
#[test]
fn each_of_many_calls_sees_one_of_the_rules() {
    let rules = [
        rule("token-bucket 10/1h"),
        rule("token-bucket 20/1h & token-bucket 20/1d"),
    ];
    let live = LiveRule::new(rules[0].clone());
    let limiter = Limiter::live(Policy::new("jobs"), &live, Local::new());
    let is_over = Arc::new(AtomicBool::new(false));
    let callers: Vec<_> = (0..2_u64)
        .map(|caller| {
            let (limiter, is_over) = (limiter.clone(), is_over.clone());
            thread::spawn(move || {
                let (mut calls, mut seen) = (0_u64, [false; 2]);
                while !is_over.load(Ordering::Relaxed) {
                    let limit = limiter
                        .check(caller + 2 * calls, Cost::ONE)
                        .at_once()
                        .limit();
                    let rule = [Some(10), Some(20)].iter().position(|one| *one == limit);
                    seen[rule.expect("one of the rules")] = true;
                    calls += 1;
                }
                seen
            })
        })
        .collect();
    for turn in 0..200 {
        live.set(rules[turn % 2].clone()).unwrap();
        thread::sleep(Duration::from_millis(1));
    }
    is_over.store(true, Ordering::Relaxed);
    for caller in callers {
        assert_eq!(caller.join().unwrap(), [true; 2]);
    }
}

proptest! {
    /// A window counts on whatever its limit becomes.
    #[test]
    fn a_change_forgets_no_call(
        changes in prop::collection::vec((1_u64..40, 0_u64..20), 1..20),
    ) {
        let live = LiveRule::new(FixedWindow::per_hour(20));
        let store = LocalBuilder::new().clock(ManualClock::default()).build();
        let limiter = Limiter::live(Policy::new("jobs"), &live, store);
        let mut spent = 0;
        for (limit, calls) in changes {
            live.set(FixedWindow::per_hour(limit)).unwrap();
            for _ in 0..calls {
                let admitted = limiter.check("alice", Cost::ONE).at_once().is_admitted();
                prop_assert_eq!(admitted, spent < limit, "{} of {}", spent, limit);
                spent += u64::from(admitted);
            }
        }
    }
}
