//! The view of clients, handlers and observers of a dry run: nothing of the decisions that are not
//! shown, and the others beside those of live limits.

use std::sync::{Arc, Mutex};

use http::{HeaderValue, Request, Response, StatusCode, header};
use tollgate::{
    Limit, Outcome, Policy, RateLimitLayer, Verdict,
    observe::{Event, Observer},
    respond::{Grpc, Headers, Http},
    time::ManualClock,
};

use super::{ByClient, Call, Calls, call, client, local, rule, service};

/// Returns a layer of a live limit of two a minute.
macro_rules! live {
    ($clock:expr, $respond:expr) => {
        RateLimitLayer::new(rule("token-bucket 2/1m"))
            .named("live")
            .key(ByClient)
            .store(local($clock))
            .respond($respond)
    };
}

/// A dry run of one request in ten days, whose waits are longer than those of the live limit.
macro_rules! slow {
    () => {
        Limit::new(rule("token-bucket 1/10d"))
            .named("slow")
            .key(ByClient)
            .dry_run()
    };
}

fn fields(response: &Response<String>) -> Vec<(String, HeaderValue)> {
    let headers = response.headers().iter();
    headers
        .map(|(name, value)| (name.to_string(), value.clone()))
        .collect()
}

fn grpc(of: u64) -> Request<Call> {
    let mut request = client(of);
    *request.method_mut() = http::Method::POST;
    let grpc = HeaderValue::from_static("application/grpc");
    request.headers_mut().insert(header::CONTENT_TYPE, grpc);
    request
}

const ALL: [Headers; 6] = [
    Headers::Draft,
    Headers::Draft07,
    Headers::Draft06,
    Headers::Legacy,
    Headers::LegacyDelta,
    Headers::None,
];

#[test]
fn a_dry_run_that_is_not_shown_changes_no_field_in_any_format() {
    for headers in ALL {
        let clock = ManualClock::default();
        let http = || Http::new().headers(headers);
        let mut with: Calls = service!(live!(&clock, http()).also(slow!()));
        let mut without: Calls = service!(live!(&clock, http()));
        let grpcs = || Grpc::new().headers(headers);
        let mut with_grpc: Calls = service!(live!(&clock, grpcs()).also(slow!()));
        let mut without_grpc: Calls = service!(live!(&clock, grpcs()));
        for request in [client, grpc] {
            for _ in 0..4 {
                let [a, b] = [&mut with, &mut without].map(|service| call(service, request(7)));
                assert_eq!((a.status(), fields(&a)), (b.status(), fields(&b)));
                assert_eq!(a.body(), b.body());
            }
        }
        for _ in 0..4 {
            let services = [&mut with_grpc, &mut without_grpc];
            let [a, b] = services.map(|service| call(service, grpc(7)));
            assert_eq!(fields(&a), fields(&b));
        }
    }
}

#[test]
fn a_dry_run_alone_sends_no_fields_and_has_no_outcome_unless_shown() {
    for headers in ALL {
        let clock = ManualClock::default();
        let layer = live!(&clock, Http::new().headers(headers)).dry_run();
        let mut hidden: Calls = service!(layer.clone());
        let mut shown: Calls = service!(layer.dry_run_shown());
        for _ in 0..3 {
            let response = call(&mut hidden, client(7));
            assert_eq!(response.status(), StatusCode::OK);
            assert_eq!(fields(&response), []);
            assert!(response.extensions().get::<Outcome>().unwrap().is_empty());
        }
        // Both services share the counts, the store, and so the bucket, which is empty by now.
        let response = call(&mut shown, client(7));
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(fields(&response).is_empty(), headers == Headers::None);
        assert!(!response.headers().contains_key(header::RETRY_AFTER));
        let outcome = response.extensions().get::<Outcome>().unwrap();
        let decision = outcome.get("live").unwrap();
        assert_eq!(decision.verdict(), Verdict::DryRun { admitted: false });
        assert!(decision.is_dry_run() && outcome.is_admitted());
        assert_eq!(outcome.refusals().count(), 0);
        assert_eq!(outcome.nearest().unwrap().0.name(), "live");
        // A refusal of a dry run charged nothing.
        assert!(outcome.take_charge("live").is_err());
    }
}

#[test]
fn a_dry_run_that_is_shown_stands_behind_the_live_limits() {
    let clock = ManualClock::default();
    let mut service: Calls = service!(live!(&clock, Http::new()).also(slow!().dry_run_shown()));
    call(&mut service, client(7));
    let second = call(&mut service, client(7));
    // The dry run would have refused, and leaves as little as the live limit.
    assert_eq!(second.status(), StatusCode::OK);
    let value = "\"live\";r=0;t=30, \"slow\";r=0;t=864000";
    assert_eq!(second.headers()["ratelimit"], value);
    let value = "\"live\";q=2;w=60, \"slow\";q=1;w=864000";
    assert_eq!(second.headers()["ratelimit-policy"], value);
    assert!(!second.headers().contains_key(header::RETRY_AFTER));
    let outcome = second.extensions().get::<Outcome>().unwrap();
    assert_eq!(outcome.nearest().unwrap().0.name(), "live");
    assert_eq!(outcome.refusals().count(), 0);
    assert!(outcome.is_admitted());
    let names: Vec<_> = outcome
        .by_nearness()
        .map(|(policy, _)| policy.name())
        .collect();
    assert_eq!(names, ["live", "slow"]);

    let third = call(&mut service, client(7));
    assert_eq!(third.status(), StatusCode::TOO_MANY_REQUESTS);
    // The dry run's wait is ten days.
    assert_eq!(third.headers()[header::RETRY_AFTER], "30");
    assert!(
        third.body().contains("\"violated-policies\":[\"live\"]"),
        "{}",
        third.body()
    );
    let outcome = third.extensions().get::<Outcome>().unwrap();
    assert!(!outcome.is_admitted());
    let refusals: Vec<_> = outcome
        .refusals()
        .map(|(policy, _)| policy.name())
        .collect();
    assert_eq!(refusals, ["live"]);
}

#[test]
fn a_refusal_over_grpc_does_not_name_a_dry_run() {
    let clock = ManualClock::default();
    let mut shown: Calls = service!(live!(&clock, Http::new()).also(slow!().dry_run_shown()));
    let mut without: Calls = service!(live!(&clock, Http::new()));
    let services = [&mut shown, &mut without];
    let [shown, without] = services.map(|service| {
        call(service, grpc(7));
        call(service, grpc(7));
        call(service, grpc(7))
    });
    for field in [
        "grpc-status",
        "grpc-message",
        "grpc-retry-pushback-ms",
        "grpc-status-details-bin",
    ] {
        assert_eq!(shown.headers()[field], without.headers()[field], "{field}");
    }
    assert_eq!(shown.headers()["grpc-status"], "8");
}

#[test]
fn older_formats_report_the_live_limit() {
    for headers in [Headers::Draft06, Headers::Legacy, Headers::LegacyDelta] {
        let clock = ManualClock::default();
        let respond = || Http::new().headers(headers);
        let mut shown: Calls = service!(live!(&clock, respond()).also(slow!().dry_run_shown()));
        let mut without: Calls = service!(live!(&clock, respond()));
        for _ in 0..3 {
            let services = [&mut shown, &mut without];
            let [shown, without] = services.map(|service| fields(&call(service, client(7))));
            assert_eq!(shown, without);
        }
    }
}

/// The names of events, with the policy and the verdict.
#[derive(Clone, Default)]
struct Events(Arc<Mutex<Vec<String>>>);

impl Events {
    fn push(&self, name: &str, event: &Event<'_>) {
        let (policy, verdict) = (event.policy().name(), event.decision().verdict());
        self.0
            .lock()
            .unwrap()
            .push(format!("{name} {policy} {verdict:?}"));
    }
}

impl Observer for Events {
    fn admitted(&self, event: &Event<'_>) {
        self.push("admitted", event);
    }
    fn refused(&self, event: &Event<'_>) {
        self.push("refused", event);
    }
    fn dry_run(&self, event: &Event<'_>) {
        self.push("dry run", event);
    }
}

#[test]
fn observers_distinguish_dry_runs() {
    let (clock, events) = (ManualClock::default(), Events::default());
    let layer = live!(&clock, Http::new())
        .also(slow!())
        .observe(events.clone());
    let mut service: Calls = service!(layer);
    for _ in 0..3 {
        call(&mut service, client(7));
    }
    let expected = [
        "admitted live Allow",
        "dry run slow Allow",
        "admitted live Allow",
        "dry run slow Refuse",
        "refused live Refuse",
        "dry run slow Refuse",
    ];
    assert_eq!(*events.0.lock().unwrap(), expected);
}

/// A rule that is selected for a request decides and is charged on a dry run, too.
#[test]
fn a_dry_run_selects_rules() {
    let clock = ManualClock::default();
    let layer = live!(&clock, Http::new())
        .rule(|request: &Request<Call>| {
            (request.body().units == 2).then(|| rule("token-bucket 1/1m"))
        })
        .dry_run();
    let mut service: Calls = service!(layer.clone());
    for (of, units) in [(7, 1), (7, 1), (7, 1), (8, 2), (8, 2)] {
        let mut request = client(of);
        request.body_mut().units = units;
        assert_eq!(call(&mut service, request).status(), StatusCode::OK);
    }
    let report = layer.dry_run_report("live").unwrap();
    // Two of the own rule, and one of the selected one.
    assert_eq!((report.admitted, report.refused), (3, 2));
}

/// A request that the live limit delays is held, and the candidate counts it once. Dropped, it
/// gives both charges back.
#[tokio::test(start_paused = true)]
async fn a_delayed_request_that_is_dropped_gives_the_charge_of_the_dry_run_back() {
    let clock = ManualClock::default();
    let store = local(&clock);
    let (queue, bucket) = (rule("leaky-bucket 1/1h"), rule("token-bucket 5/1d"));
    let layer = RateLimitLayer::new(queue.clone())
        .named("live")
        .key(ByClient)
        .store(store.clone())
        .candidate("next", bucket.clone());
    let service: Calls = service!(layer);
    let next = Policy::new("next");
    let left = || store.look(&next, &bucket, &7_u64.into()).remaining();
    for dropped in 0..2 {
        let mut service = service.clone();
        let held = tokio::time::timeout(std::time::Duration::from_secs(60), async {
            use tower::Service;
            service.call(client(7)).await
        });
        assert_eq!(held.await.is_err(), dropped == 1);
        assert_eq!(left(), Some(4));
    }
    let report = layer.dry_run_report("next").unwrap();
    assert_eq!((layer.cancelled(), report.both_admitted), (1, 2));
}
