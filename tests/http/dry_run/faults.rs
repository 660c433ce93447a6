//! Stores that fail, answer late, or do not support a call: a dry run never refuses, and is not
//! compared.

use std::{
    future::Future as _,
    task::{Context, Poll, Waker},
};

use http::StatusCode;
use tollgate::{
    AnyRule, DryRunReport, Policy, RateLimitLayer,
    key::Key,
    store::{
        Backend, Local, Store, StoreError, StoreExt,
        driver::{Ask, Check, Decisions, Settlement},
    },
    testing::{Fault, Faulty},
    time::ManualClock,
};
use tower::ServiceExt;

use super::{ByClient, Calls, client, local, rule, service};

/// Returns a layer with a candidate that refuses the second request, over this store.
macro_rules! layer {
    ($store:expr) => {
        RateLimitLayer::new(rule("token-bucket 9/1d"))
            .named("live")
            .key(ByClient)
            .store($store)
            .candidate("next", rule("token-bucket 1/1d"))
    };
}

/// Returns the admitted, refused, undecided and compared requests.
fn counts(report: Option<DryRunReport>) -> [u64; 4] {
    let report = report.unwrap();
    let alone = report.admitted_alone + report.refused_alone;
    let compared = report.both_admitted + report.both_refused + alone;
    [report.admitted, report.refused, report.undecided, compared]
}

async fn status(service: &Calls) -> StatusCode {
    service.clone().oneshot(client(7)).await.unwrap().status()
}

/// The candidate is asked first, then the live limit.
#[tokio::test]
async fn a_failure_about_the_dry_run_alone_changes_nothing_for_the_request() {
    for fault in [Fault::Unavailable, Fault::Contended, Fault::Lost] {
        let faulty = Faulty::new(local(&ManualClock::default()));
        let faults = faulty.faults();
        let layer = layer!(faulty.fail_closed());
        let service: Calls = service!(layer);
        faults.script([Some(fault), None]);
        assert_eq!(status(&service).await, StatusCode::OK);
        assert_eq!(counts(layer.dry_run_report("next")), [0, 0, 1, 0]);
        assert_eq!(status(&service).await, StatusCode::OK);
        // A lost answer was charged.
        let refused = u64::from(fault == Fault::Lost);
        assert_eq!(
            counts(layer.dry_run_report("next")),
            [1 - refused, refused, 1, 1]
        );
        assert_eq!(layer.misconfigured(), 0);
    }
}

#[tokio::test]
async fn a_failure_about_the_live_limit_is_not_compared() {
    for (opens, expected) in [
        (true, StatusCode::OK),
        (false, StatusCode::SERVICE_UNAVAILABLE),
    ] {
        let faulty = Faulty::new(local(&ManualClock::default()));
        let faults = faulty.faults();
        let store = if opens {
            faulty.fail_open().boxed()
        } else {
            faulty.fail_closed().boxed()
        };
        let layer = layer!(store);
        let service: Calls = service!(layer);
        for answered in [[1, 0, 0, 0], [1, 1, 0, 0]] {
            faults.script([None, Some(Fault::Unavailable)]);
            assert_eq!(status(&service).await, expected);
            assert_eq!(counts(layer.dry_run_report("next")), answered);
        }
        assert_eq!(status(&service).await, StatusCode::OK);
        assert_eq!(counts(layer.dry_run_report("next")), [1, 2, 0, 1]);
    }
}

#[tokio::test]
async fn a_dry_run_alone_over_a_store_that_is_gone_lets_everything_pass() {
    let faulty = Faulty::new(local(&ManualClock::default()));
    faulty.faults().always(Fault::Unavailable);
    let layer = RateLimitLayer::new(rule("token-bucket 1/1d"))
        .key(ByClient)
        .store(faulty.fail_closed())
        .dry_run();
    let service: Calls = service!(layer);
    for _ in 0..3 {
        assert_eq!(status(&service).await, StatusCode::OK);
    }
    assert_eq!(counts(layer.dry_run_report("default")), [0, 0, 3, 0]);
    // Enforced for all keys, it is closed.
    let layer = layer.enforce_for(100);
    let service: Calls = service!(layer);
    assert_eq!(status(&service).await, StatusCode::SERVICE_UNAVAILABLE);
}

/// Answers that come late, in every order.
#[tokio::test]
async fn late_answers_are_counted_as_prompt_ones() {
    for (dry, live) in [(0, 0), (0, 3), (3, 0), (1, 5), (5, 1), (2, 2)] {
        let faulty = Faulty::new(local(&ManualClock::default()));
        let faults = faulty.faults();
        let layer = layer!(faulty.fail_closed());
        let service: Calls = service!(layer);
        for _ in 0..12 {
            let late = |polls| (polls > 0).then_some(Fault::Late(polls));
            faults.script([late(dry), late(live)]);
            status(&service).await;
        }
        let report = layer.dry_run_report("next").unwrap();
        let compared = (
            report.both_admitted,
            report.refused_alone,
            report.both_refused,
        );
        assert_eq!(compared, (1, 8, 3), "{dry}, {live}");
        assert_eq!((report.admitted_alone, report.refused_keys), (0, 1));
    }
}

/// The store is asked about both before either is answered, so the slower answer alone is waited
/// for.
#[tokio::test]
async fn the_dry_run_and_the_live_limit_are_asked_at_the_same_time() {
    let faulty = Faulty::new(local(&ManualClock::default()));
    let faults = faulty.faults();
    let layer = layer!(faulty.fail_closed());
    let service: Calls = service!(layer);
    faults.script([Some(Fault::Held), Some(Fault::Held)]);
    let mut future = Box::pin(service.oneshot(client(7)));
    let mut cx = Context::from_waker(Waker::noop());
    assert!(future.as_mut().poll(&mut cx).is_pending());
    faults.release();
    assert!(matches!(future.as_mut().poll(&mut cx), Poll::Ready(Ok(_))));
    assert_eq!(counts(layer.dry_run_report("next")), [1, 0, 0, 1]);
}

/// The request waits for the dry run. Dropped meanwhile, it is not counted.
#[tokio::test]
async fn a_request_that_is_dropped_while_the_store_is_asked_is_not_counted() {
    let clock = ManualClock::default();
    let store = local(&clock);
    let faulty = Faulty::new(store.clone());
    let faults = faulty.faults();
    let layer = layer!(faulty.fail_closed());
    let service: Calls = service!(layer);
    for dropped in [true, false] {
        faults.script([Some(Fault::Held), None]);
        let mut future = Box::pin(service.clone().oneshot(client(7)));
        let mut cx = Context::from_waker(Waker::noop());
        for _ in 0..3 {
            assert!(future.as_mut().poll(&mut cx).is_pending());
        }
        assert_eq!(counts(layer.dry_run_report("next")), [0; 4]);
        if !dropped {
            faults.release();
            assert!(matches!(future.as_mut().poll(&mut cx), Poll::Ready(Ok(_))));
        }
    }
    // The first one was charged, once, so the second would be refused.
    assert_eq!(counts(layer.dry_run_report("next")), [0, 1, 0, 1]);
    let left = store.look(
        &Policy::new("live"),
        &rule("token-bucket 9/1d"),
        &Key::from(7_u64),
    );
    assert_eq!(left.remaining(), Some(7));
}

/// A store that fails for one policy in a way of its own.
#[derive(Clone)]
struct Odd {
    store: Local<AnyRule, ManualClock>,
    policy: &'static str,
    is_silent: bool,
}

impl Backend for Odd {
    type Error = StoreError;
}

impl Store<AnyRule> for Odd {
    type Answer = std::future::Ready<Result<Decisions, StoreError>>;
    type Done = std::future::Ready<Result<(), StoreError>>;

    fn acquire(&self, asks: &[Ask<'_, AnyRule>]) -> Check<Self::Answer> {
        let is_odd = asks.iter().any(|ask| ask.policy().name() == self.policy);
        match (is_odd, self.is_silent) {
            // Fewer decisions than asks: a mistake of the store.
            (true, true) => Check::Ready(Ok(Decisions::default())),
            (true, false) => Check::Ready(Err(StoreError::unsupported(
                "a rule that this store cannot run",
            ))),
            (false, _) => {
                let decide = |ask: &Ask<'_, AnyRule>| self.store.decide(ask);
                Check::Ready(Ok(asks.iter().map(decide).collect()))
            }
        }
    }

    fn look(&self, asks: &[Ask<'_, AnyRule>]) -> Check<Self::Answer> {
        let look = |ask: &Ask<'_, AnyRule>| self.store.look(ask.policy(), ask.rule(), ask.key());
        Check::Ready(Ok(asks.iter().map(look).collect::<Decisions>()))
    }

    fn settle(&self, _: Vec<Settlement<'_, AnyRule>>) -> Check<Self::Done> {
        Check::Ready(Ok(()))
    }

    fn reset(&self, _: &Policy, _: &Key) -> Check<Self::Done> {
        Check::Ready(Ok(()))
    }
}

fn odd(policy: &'static str, is_silent: bool) -> Odd {
    let store = local(&ManualClock::default());
    Odd {
        store,
        policy,
        is_silent,
    }
}

/// An unsupported call of a live limit is the server's fault, and 500. On a dry run it is
/// undecided.
#[tokio::test]
async fn a_dry_run_that_the_store_does_not_support_refuses_nothing() {
    let layer = layer!(odd("next", false).fail_open());
    let service: Calls = service!(layer);
    assert_eq!(status(&service).await, StatusCode::OK);
    assert_eq!(
        (counts(layer.dry_run_report("next")), layer.misconfigured()),
        ([0, 0, 1, 0], 0)
    );

    let layer = layer!(odd("live", false).fail_open());
    let service: Calls = service!(layer);
    assert_eq!(status(&service).await, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(
        (counts(layer.dry_run_report("next")), layer.misconfigured()),
        ([1, 0, 0, 0], 1)
    );
}

/// A store that answers too few asks neither hangs the request nor opens the gate.
#[tokio::test]
async fn a_decision_that_is_missing_is_unsupported() {
    for (policy, status_of, expected) in [
        ("next", StatusCode::OK, [0, 0, 1, 0]),
        ("live", StatusCode::INTERNAL_SERVER_ERROR, [1, 0, 0, 0]),
    ] {
        let layer = layer!(odd(policy, true).fail_open());
        let service: Calls = service!(layer);
        assert_eq!(status(&service).await, status_of);
        assert_eq!(counts(layer.dry_run_report("next")), expected);
    }
}
