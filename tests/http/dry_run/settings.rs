//! Settings of dry runs: the order of calls does not matter, and mistakes are errors.

use std::convert::Infallible;

use http::{Request, Response, StatusCode};
use tollgate::{ChargeHandle, Cost, Limit, Policy, RateLimitLayer, key::Key, time::ManualClock};
use tower::{Layer, ServiceExt, service_fn};

use super::{ByClient, Calls, call, client, local, rule, service};

fn layer_of(
    clock: &ManualClock,
) -> RateLimitLayer<
    Limit<tollgate::AnyRule>,
    tollgate::store::Local<tollgate::AnyRule, ManualClock>,
    tollgate::respond::Http,
> {
    RateLimitLayer::new(rule("token-bucket 1/1d"))
        .named("live")
        .store(local(clock))
}

#[test]
fn settings_of_a_dry_run_survive_a_change_of_its_share() {
    let clock = ManualClock::default();
    let limit = || {
        let limit = Limit::new(rule("token-bucket 1/1d")).named("next");
        limit
            .dry_run()
            .compared_with(Policy::new("live"))
            .dry_run_shown()
    };
    for next in [
        limit().enforce_for(0),
        limit().dry_run(),
        limit().enforce_for(100).dry_run(),
    ] {
        let layer = layer_of(&clock).also(next);
        let mut service: Calls = service!(layer.clone());
        let shown = call(&mut service, client(7)).headers()["ratelimit-policy"].clone();
        assert!(shown.to_str().unwrap().contains("next"), "{shown:?}");
        let report = layer.dry_run_report("next").unwrap();
        assert_eq!(report.both_admitted + report.both_refused, 1);
    }
}

/// Settings of a dry run are none of a limit that is on none.
#[test]
fn settings_of_a_dry_run_leave_an_enforced_limit_alone() {
    let clock = ManualClock::default();
    let strict = Limit::new(rule("token-bucket 1/1d")).named("strict");
    let strict = strict.compared_with(Policy::new("lvie")).dry_run_shown();
    let layer = RateLimitLayer::from(strict).store(local(&clock));
    let mut service: Calls = service!(layer.clone());
    assert_eq!(call(&mut service, client(7)).status(), StatusCode::OK);
    let refused = call(&mut service, client(7)).status();
    assert_eq!(refused, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(layer.dry_run_report("strict"), None);
}

/// The handle of a limit settles what is on a dry run for the key, and no charge that counts.
#[tokio::test]
async fn a_limit_that_is_enforced_is_settled_by_itself() {
    for percent in [0, 100] {
        let clock = ManualClock::default();
        let limit = |name| {
            let limit = Limit::new(rule("token-bucket 9/1d")).named(name);
            limit.cost(Cost::new(5).unwrap()).charge_handle()
        };
        let compared = limit("compared").enforce_for(percent);
        let layer = RateLimitLayer::from(limit("live"))
            .store(local(&clock))
            .also(compared.compared_with(Policy::new("live")));
        let handler = service_fn(async |request: Request<()>| {
            let handles = request.extensions().get::<ChargeHandle>().unwrap();
            handles.of("live").unwrap().settle(7).unwrap().await;
            // The units that are left to it.
            let settled = handles
                .of("compared")
                .map(|compared| compared.settle(3).is_ok());
            Ok::<_, Infallible>(Response::new(format!("{:?}", settled.ok())))
        });
        let response = layer.layer(handler).oneshot(Request::new(())).await;
        assert_eq!(
            response.unwrap().into_body(),
            format!("{:?}", Some(percent == 100))
        );
        let compared = layer
            .limiter("compared")
            .unwrap()
            .look(Key::GLOBAL)
            .at_once();
        let charged = if percent == 100 { 3 } else { 7 };
        assert_eq!(compared.remaining(), Some(9 - charged), "{percent} %");
    }
}

#[test]
fn the_report_is_that_of_the_policy_at_last() {
    let clock = ManualClock::default();
    let layer = layer_of(&clock).dry_run().policy(Policy::new("last"));
    let mut service: Calls = service!(layer.clone());
    call(&mut service, client(7));
    assert_eq!(layer.dry_run_report("last").unwrap().admitted, 1);
    for name in ["live", "default", "", "naïve"] {
        assert_eq!(layer.dry_run_report(name), None);
    }
    // A live limit has no report.
    assert_eq!(layer_of(&clock).dry_run_report("live"), None);
}

#[test]
fn a_comparison_needs_another_limit_of_the_layer() {
    let clock = ManualClock::default();
    let next = |live| {
        let limit = Limit::new(rule("token-bucket 1/1d")).named("next");
        limit.dry_run().compared_with(Policy::new(live))
    };
    for wrong in ["next", "lvie"] {
        let error = layer_of(&clock)
            .try_also(next(wrong))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(&format!("compared with `{wrong}`")),
            "{error}"
        );
        assert!(
            error.contains("expected") && error.contains("compared_with"),
            "{error}"
        );
    }
    assert!(layer_of(&clock).try_also(next("live")).is_ok());
}

#[test]
fn names_and_shares_from_configuration_are_checked() {
    let clock = ManualClock::default();
    let limit = || Limit::new(rule("token-bucket 1/1d"));
    let error = limit().try_enforce_for(101).unwrap_err().to_string();
    assert!(
        error.contains("101 %") && error.contains("expected 0 to 100"),
        "{error}"
    );
    assert!(limit().try_enforce_for(200).is_err());
    for name in ["live", "", "naïve"] {
        assert!(
            layer_of(&clock)
                .try_candidate(name, rule("token-bucket 2/1d"))
                .is_err()
        );
    }
}

/// All limits of a layer on a dry run, in every position.
#[test]
fn several_dry_runs_have_a_report_each() {
    let clock = ManualClock::default();
    let limit = |name, burst| {
        Limit::new(rule(&format!("token-bucket 1/1d burst={burst}")))
            .named(name)
            .key(ByClient)
    };
    let layer = layer_of(&clock)
        .dry_run()
        .also(limit("two", 2).dry_run())
        .also(limit("three", 3))
        .also(
            limit("four", 4)
                .dry_run()
                .compared_with(Policy::new("three")),
        );
    let mut service: Calls = service!(layer.clone());
    let statuses = [0; 6].map(|_| call(&mut service, client(7)).status());
    let (ok, refused) = (StatusCode::OK, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(statuses, [ok, ok, ok, refused, refused, refused]);
    for (name, admitted) in [("live", 1), ("two", 2), ("four", 4)] {
        let report = layer.dry_run_report(name).unwrap();
        assert_eq!(
            (report.admitted, report.refused),
            (admitted, 6 - admitted),
            "{name}"
        );
    }
    let four = layer.dry_run_report("four").unwrap();
    assert_eq!(
        (four.both_admitted, four.admitted_alone, four.both_refused),
        (3, 1, 2)
    );
}
