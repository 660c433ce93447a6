//! Limits in a list, whose types can be written down, decide as typed ones do.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use http::{HeaderMap, Request, Response, StatusCode};
use proptest::prelude::*;
use tollgate::{
    AnyRule, BoxLayer, BoxLimit, Cost, Limit, Outcome, Policy,
    key::{Extracted, MissingKey},
    observe::{Event, Observer},
    prelude::*,
    time::ManualClock,
};
use tower::{Layer, ServiceExt, service_fn};

type Boxed = BoxLimit<Request<String>, AnyRule>;

fn rule(text: &str) -> AnyRule {
    text.parse().unwrap()
}

/// A struct of an application, with its limits.
struct App {
    limits: BoxLayer<Request<String>, AnyRule>,
}

fn app(limits: Vec<Boxed>) -> App {
    let limits = RateLimitLayer::list(limits).unwrap();
    App {
        limits: limits.store(Local::new().boxed()),
    }
}

async fn send(app: &App, body: &str) -> Response<String> {
    let handler = service_fn(async |request: Request<String>| {
        Ok::<_, Infallible>(Response::new(request.into_body()))
    });
    let service = app.limits.layer(handler);
    service
        .oneshot(Request::new(body.to_owned()))
        .await
        .unwrap()
}

#[test]
fn a_list_without_limits_is_an_error() {
    let error = RateLimitLayer::list(Vec::<Boxed>::new()).unwrap_err();
    assert!(error.to_string().contains("one limit at least"), "{error}");
}

#[test]
fn limits_of_a_list_have_different_names_and_known_ones_beside_them() {
    let limit = || Limit::new(rule("token-bucket 1/1h"));
    let twice = vec![limit().boxed(), limit().boxed()];
    let error = RateLimitLayer::list(twice as Vec<Boxed>).unwrap_err();
    assert!(error.to_string().contains("different names"), "{error}");
    let next = limit().named("next").dry_run();
    let alone: Vec<Boxed> = vec![next.compared_with(Policy::new("live")).boxed()];
    let error = RateLimitLayer::list(alone).unwrap_err();
    assert!(
        error.to_string().contains("compared with `live`"),
        "{error}"
    );
}

#[tokio::test]
async fn all_limits_of_a_list_are_charged_or_none() {
    let app = app(vec![
        Limit::new(rule("token-bucket 2/1h")).named("two").boxed(),
        Limit::new(rule("token-bucket 9/1h")).named("nine").boxed(),
    ]);
    for expected in [200, 200, 429, 429, 429] {
        assert_eq!(send(&app, "").await.status(), expected);
    }
    for (name, left) in [("two", 0), ("nine", 7)] {
        let look = app.limits.limiter(name).unwrap().look(Key::GLOBAL);
        assert_eq!(look.await.remaining(), Some(left), "{name}");
    }
}

/// Counts the refusals of one limit.
#[derive(Default)]
struct Refusals(AtomicU64);

impl Observer for Refusals {
    fn refused(&self, event: &Event<'_>) {
        assert_eq!(event.policy().name(), "client");
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn keys_costs_conditions_dry_runs_and_observers_work_in_a_list() {
    let refusals = Arc::new(Refusals::default());
    let client = |request: &Request<String>| Key::from(&request.body()[..1]);
    let app = app(vec![
        Limit::new(rule("token-bucket 4/1h"))
            .named("client")
            .key(client)
            .cost(|request: &Request<String>| Cost::new(request.body().len() as u64).unwrap())
            .charge_if(|response: &Response<String>| !response.body().contains("free"))
            .boxed(),
        Limit::new(rule("token-bucket 1/1h"))
            .named("next")
            .dry_run()
            .boxed(),
    ]);
    let app = App {
        limits: app.limits.observe(Arc::clone(&refusals)),
    };
    // The first key is exhausted by two calls of 2 units, the second one by none.
    for (body, expected) in [
        ("aa", 200),
        ("aa", 200),
        ("aa", 429),
        ("free", 200),
        ("free", 200),
    ] {
        assert_eq!(send(&app, body).await.status(), expected, "{body}");
    }
    assert_eq!(refusals.0.load(Ordering::Relaxed), 1);
    let report = app.limits.dry_run_report("next").unwrap();
    assert_eq!((report.admitted, report.refused), (1, 4));
}

#[tokio::test]
async fn a_request_without_a_key_is_refused_and_an_exempt_one_is_not() {
    let key = |request: &Request<String>| match request.body().as_str() {
        "" => Err(MissingKey::new("no body").with_status(StatusCode::FORBIDDEN)),
        "exempt" => Ok(Extracted::Exempt),
        other => Ok(Extracted::Key(Key::from(other))),
    };
    let app = app(vec![
        Limit::new(rule("token-bucket 1/1h"))
            .key(tollgate::key::from_fn(key))
            .boxed(),
    ]);
    for (body, expected) in [
        ("", 403),
        ("exempt", 200),
        ("exempt", 200),
        ("a", 200),
        ("a", 429),
    ] {
        assert_eq!(send(&app, body).await.status(), expected, "{body}");
    }
}

fn fields(headers: &HeaderMap) -> Vec<(String, String)> {
    let fields = headers.iter();
    let text = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
        (name.to_string(), value.to_str().unwrap().to_owned())
    };
    fields.map(text).collect()
}

proptest! {
    /// A pair and a list of the same limits get the same requests, on clocks of their own.
    #[test]
    fn a_list_answers_as_a_pair_does(
        first in prop::sample::select(super::pairs::RULES.to_vec()),
        second in prop::sample::select(super::pairs::RULES.to_vec()),
        dry in any::<[bool; 2]>(),
        calls in prop::collection::vec((0..4_u8, 1..4_u64, 0..2_000_u64), 1..20),
    ) {
        let clocks = [(); 2].map(|()| ManualClock::default());
        let store = |clock: &ManualClock| LocalBuilder::new().clock(clock.clone()).build();
        let limit = |name, text: &str, is_dry: bool| {
            let limit = Limit::new(rule(text))
                .named(name)
                .key(|request: &Request<(u8, u64)>| Key::from(u64::from(request.body().0)))
                .cost(|request: &Request<(u8, u64)>| Cost::new(request.body().1).unwrap());
            if is_dry { limit.dry_run().dry_run_shown() } else { limit }
        };
        let limits = || (limit("first", first, dry[0]), limit("second", second, dry[1]));
        let handler = || service_fn(async |request: Request<(u8, u64)>| {
            let outcome = request.extensions().get::<Outcome>().map(|outcome| format!("{outcome:?}"));
            Ok::<_, Infallible>(Response::new(outcome.unwrap_or_default()))
        });
        let (one, two) = limits();
        let pair = RateLimitLayer::from(one).store(store(&clocks[0])).also(two);
        let pair = pair.respond(Http::empty()).layer(handler());
        let (one, two) = limits();
        let list: Vec<BoxLimit<Request<(u8, u64)>, AnyRule, Response<String>>> = vec![one.boxed(), two.boxed()];
        let list = RateLimitLayer::list(list).unwrap().store(store(&clocks[1]).boxed());
        let list = list.respond(Http::empty()).layer(handler());

        // Delays end at once.
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build().unwrap();
        for (key, cost, millis) in calls {
            for clock in &clocks {
                clock.advance(std::time::Duration::from_millis(millis));
            }
            let answers = runtime.block_on(async {
                let of_pair = pair.clone().oneshot(Request::new((key, cost))).await.unwrap();
                let of_list = list.clone().oneshot(Request::new((key, cost))).await.unwrap();
                [of_pair, of_list].map(|response| {
                    (response.status(), fields(response.headers()), response.into_body())
                })
            });
            prop_assert_eq!(&answers[0], &answers[1]);
        }
    }
}
