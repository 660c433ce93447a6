//! Dry runs of limits that charge by the response.

use std::convert::Infallible;

use http::{Request, Response};
use tollgate::{
    AnyRule, BoxLimit, ChargeHandle, Cost, Limit, Policy, RateLimitLayer, key::Key,
    time::ManualClock,
};
use tower::{Layer, service_fn, util::BoxCloneService};

use super::{ByClient, Call, call, client, local, rule};

/// Answers a call of two units with a failure.
async fn fails_on_two(request: Request<Call>) -> Result<Response<String>, Infallible> {
    let text = if request.body().units == 2 {
        "failure"
    } else {
        "success"
    };
    Ok(Response::new(text.to_owned()))
}

fn is_failure(response: &Response<String>) -> bool {
    response.body() == "failure"
}

/// Failures and successes of one client. Both rules count the failures alone.
const FAILS: [bool; 12] = [
    false, true, false, false, true, false, true, true, true, false, true, true,
];

/// Sends the calls, and compares the report with a model that counts failures.
macro_rules! assert_counts_failures {
    ($layer:expr, $most:expr, $live:expr) => {{
        let layer = $layer;
        let inner = service_fn(fails_on_two);
        let mut service = tower::util::BoxCloneService::new(tower::Layer::layer(&layer, inner));
        let live: Option<u64> = $live;
        let (mut live_failures, mut dry_failures) = (0, 0);
        let (mut admitted, mut refused, mut refused_alone, mut admitted_alone) = (0, 0, 0, 0);
        for fails in FAILS {
            let live_admits = live.is_none_or(|most| live_failures < most);
            let dry_admits = dry_failures < $most;
            let mut request = client(7);
            request.body_mut().units = 1 + u64::from(fails);
            let response = call(&mut service, request);
            assert_eq!(response.status().is_success(), live_admits);
            // A request that never reached the handler has no failure.
            let fails = live_admits && fails;
            live_failures += u64::from(fails);
            dry_failures += u64::from(dry_admits && fails);
            *(if dry_admits {
                &mut admitted
            } else {
                &mut refused
            }) += 1;
            refused_alone += u64::from(live.is_some() && live_admits && !dry_admits);
            admitted_alone += u64::from(!live_admits && dry_admits);
        }
        let report = layer.dry_run_report("next").unwrap();
        let counts = (
            report.admitted,
            report.refused,
            report.refused_alone,
            report.admitted_alone,
        );
        assert_eq!(counts, (admitted, refused, refused_alone, admitted_alone));
        assert!(live.is_none() || refused_alone + admitted_alone > 0);
    }};
}

#[test]
fn a_candidate_charges_by_the_condition_of_the_live_limit() {
    let clock = ManualClock::default();
    for (live, next) in [(5, 2), (2, 5)] {
        let layer = || {
            let rule = rule(&format!("token-bucket 1/1d burst={live}"));
            RateLimitLayer::new(rule)
                .named("live")
                .key(ByClient)
                .store(local(&clock))
        };
        let next_rule = || rule(&format!("token-bucket 1/1d burst={next}"));
        let by_response = layer().charge_if(is_failure as fn(&Response<String>) -> bool);
        assert_counts_failures!(by_response.candidate("next", next_rule()), next, Some(live));
        let after = layer().charge_after(is_failure as fn(&Response<String>) -> bool);
        assert_counts_failures!(after.candidate("next", next_rule()), next, Some(live));
    }
}

/// Requests that another limit refuses have no failure: on a dry run beside it, as if the limit
/// were enforced, or in a layer of its own around it.
#[test]
fn requests_that_another_limit_refuses_are_no_failures() {
    type AnyLimit = BoxLimit<Request<Call>, AnyRule, Response<String>>;
    let limit = |name: &str, rate: &str| Limit::new(rule(rate)).named(name).key(ByClient);
    let rate = || -> AnyLimit { limit("rate", "token-bucket 1/1m").boxed() };
    let failures = |kind: u8, is_dry: bool| -> AnyLimit {
        let limit = limit("failures", "token-bucket 3/1h");
        let limit = if is_dry { limit.dry_run() } else { limit };
        let condition = is_failure as fn(&Response<String>) -> bool;
        match kind {
            0 => limit.charge_if(condition).boxed(),
            1 => limit.charge_after(condition).boxed(),
            _ => limit.charge_handle().charge_if(condition).boxed(),
        }
    };
    for kind in 0..3 {
        for is_dry in [true, false] {
            let failures = || failures(kind, is_dry);
            for (outer, inner) in [
                (vec![rate(), failures()], None),
                (vec![failures(), rate()], None),
                (vec![failures()], Some(rate())),
            ] {
                let store = local(&ManualClock::default());
                let layer = |limits| RateLimitLayer::list(limits).unwrap().store(store.clone());
                let mut service = BoxCloneService::new(service_fn(fails_on_two));
                if let Some(inner) = inner {
                    service = BoxCloneService::new(layer(vec![inner]).layer(service));
                }
                let outer = layer(outer);
                let mut service = BoxCloneService::new(outer.layer(service));
                // Successes alone, of which the rate refuses all but the first.
                for n in 0..10 {
                    assert_eq!(call(&mut service, client(7)).status().is_success(), n == 0);
                }
                let (policy, key) = (Policy::new("failures"), Key::from(7_u64));
                let look = store.look(&policy, &rule("token-bucket 3/1h"), &key);
                assert_eq!(look.remaining(), Some(3), "{kind}, {is_dry}");
                let report = outer.dry_run_report("failures").unwrap_or_default();
                assert_eq!(report.refused, 0, "{kind}");
            }
        }
    }
}

/// A dry run that comes first is settled once, although the limit that it is compared with knows it.
#[test]
fn a_dry_run_before_its_limit_is_settled_once() {
    let clock = ManualClock::default();
    for (live, next) in [(5, 2), (2, 5)] {
        let limit = |name: &str, burst: u64| {
            let limit = Limit::new(rule(&format!("token-bucket 1/1d burst={burst}")));
            let limit = limit.named(name).key(ByClient);
            limit.charge_if(is_failure as fn(&Response<String>) -> bool)
        };
        let dry = limit("next", next).dry_run();
        let layer = RateLimitLayer::from(dry.compared_with(Policy::new("live")));
        let layer = layer.store(local(&clock)).also(limit("live", live));
        assert_counts_failures!(layer, next, Some(live));
    }
}

/// The handler settles both, by handles of their own.
#[test]
fn handles_settle_a_compared_dry_run_once() {
    let clock = ManualClock::default();
    for names in [["next", "live"], ["live", "next"]] {
        let limit = |name: &str, burst: u64| {
            let limit = Limit::new(rule(&format!("token-bucket 1/1d burst={burst}")));
            limit
                .named(name)
                .key(ByClient)
                .cost(Cost::new(5).unwrap())
                .charge_handle()
        };
        let dry = limit("next", 30)
            .dry_run()
            .compared_with(Policy::new("live"));
        let layer = RateLimitLayer::from(limit("live", 1000))
            .store(local(&clock))
            .also(dry);
        let inner = service_fn(move |request: Request<Call>| async move {
            let handle = request.extensions().get::<ChargeHandle>().unwrap();
            for name in names {
                // There is none of a dry run that refuses, and the limit may have settled it.
                let _ = handle.of(name).and_then(|handle| handle.settle(3));
            }
            Ok::<_, Infallible>(Response::new(String::new()))
        });
        let mut service = tower::util::BoxCloneService::new(tower::Layer::layer(&layer, inner));
        for _ in 0..20 {
            assert!(call(&mut service, client(7)).status().is_success());
        }
        // Three of 30 each time, of which five must be there.
        let report = layer.dry_run_report("next").unwrap();
        assert_eq!(report.admitted, 9, "{names:?}");
    }
}

/// "Three failures" on a dry run: a look before the request, and the charge of a failure after it,
/// have no effect.
#[test]
fn a_limit_that_charges_after_the_response_counts_failures_on_a_dry_run() {
    let clock = ManualClock::default();
    let layer = RateLimitLayer::new(rule("token-bucket 1/1d burst=3"))
        .named("next")
        .key(ByClient)
        .store(local(&clock))
        .charge_after(is_failure as fn(&Response<String>) -> bool)
        .dry_run();
    // Without a limit to compare with.
    assert_counts_failures!(layer, 3, None);
}

/// Handlers get the handle of a live limit as before, and it settles the candidate, too.
#[test]
fn a_candidate_is_settled_by_the_handle_of_its_live_limit() {
    let clock = ManualClock::default();
    let layer = RateLimitLayer::new(rule("token-bucket 9/1d"))
        .named("live")
        .key(ByClient)
        .store(local(&clock))
        .charge_handle()
        .candidate("next", rule("token-bucket 9/1d"));
    let inner = service_fn(async |request: Request<Call>| {
        let handle = request.extensions().get::<ChargeHandle>().unwrap();
        drop(handle.settle(0).unwrap());
        Ok::<_, Infallible>(Response::new(String::new()))
    });
    let mut service = tower::util::BoxCloneService::new(tower::Layer::layer(&layer, inner));
    for _ in 0..20 {
        assert!(call(&mut service, client(7)).status().is_success());
    }
    let report = layer.dry_run_report("next").unwrap();
    assert_eq!((report.admitted, report.refused_alone), (20, 0));
}

/// A limit by the handle on a dry run beside another one: the handler selects by name, and the dry
/// run is settled.
#[test]
fn a_handle_of_a_dry_run_settles_it() {
    let clock = ManualClock::default();
    let limit = Limit::new(rule("token-bucket 2/1d"))
        .named("next")
        .key(ByClient);
    let layer = RateLimitLayer::new(rule("token-bucket 9/1d"))
        .named("live")
        .key(ByClient)
        .store(local(&clock))
        .charge_handle()
        .also(limit.charge_handle().dry_run());
    let inner = service_fn(async |request: Request<Call>| {
        let handle = request.extensions().get::<ChargeHandle>().unwrap();
        for name in ["live", "next"] {
            drop(handle.of(name).unwrap().settle(0).unwrap());
        }
        Ok::<_, Infallible>(Response::new(String::new()))
    });
    let mut service = tower::util::BoxCloneService::new(tower::Layer::layer(&layer, inner));
    for _ in 0..20 {
        assert!(call(&mut service, client(7)).status().is_success());
    }
    assert_eq!(layer.dry_run_report("next").unwrap().admitted, 20);
}
