//! Stacked layers, and the headers of layers that share a name.

use std::{collections::BTreeMap, convert::Infallible};

use futures_util::FutureExt;
use http::{HeaderName, HeaderValue, Request, Response, header::HeaderMap};
use proptest::prelude::*;
use sfv::{BareItem, List, ListEntry, Parser};
use tollgate::{
    Limit, Outcome, Policy, RateLimitLayer, TokenBucket,
    respond::{Grpc, Headers, Http},
};
use tower::{Layer, Service, service_fn, util::BoxCloneService};

type Inner = BoxCloneService<Request<()>, Response<String>, Infallible>;

/// Names that could be parsed as several names, or as others.
const NAMES: [&str; 5] = [
    "api",
    "api, \"x\";r=0",
    "a;pk=:AA==:",
    "back\\slash\"",
    "default",
];

/// A layer, and the number of calls already made to it.
#[derive(Clone, Debug)]
struct Setting {
    name: &'static str,
    burst: u64,
    spent: u64,
    is_grpc: bool,
}

fn settings() -> impl Strategy<Value = Vec<Setting>> {
    let setting = (
        prop::sample::select(&NAMES[..]),
        1..6_u64,
        0..6_u64,
        any::<bool>(),
    );
    let setting = setting.prop_map(|(name, burst, spent, is_grpc)| Setting {
        name,
        burst,
        spent,
        is_grpc,
    });
    prop::collection::vec(setting, 1..5)
}

fn call(service: &mut Inner) -> Response<String> {
    let response = service.call(Request::new(())).now_or_never();
    response.expect("an answer at once").unwrap()
}

/// Returns a service inside these layers, the first one innermost. Each layer has spent its `spent`
/// calls.
fn stacked(settings: &[Setting]) -> Inner {
    let hello = async |_: Request<()>| Ok::<_, Infallible>(Response::new("hello".to_owned()));
    let plain = BoxCloneService::new(service_fn(hello));
    settings.iter().fold(plain.clone(), |inner, setting| {
        // Slow enough that nothing refills while the test runs.
        let layer = RateLimitLayer::new(TokenBucket::per_day(1).burst(setting.burst))
            .policy(Policy::new(setting.name));
        let mut alone = BoxCloneService::new(layer.layer(plain.clone()));
        for _ in 0..setting.spent {
            call(&mut alone);
        }
        if setting.is_grpc {
            BoxCloneService::new(layer.respond(Grpc::new()).layer(inner))
        } else {
            BoxCloneService::new(layer.layer(inner))
        }
    })
}

/// Returns the entries of a field, each with a parameter.
fn parameters(headers: &HeaderMap, field: &HeaderName, parameter: &str) -> Vec<(String, i64)> {
    let values: Vec<_> = headers
        .get_all(field)
        .iter()
        .map(|value| value.to_str().unwrap())
        .collect();
    let list: List = Parser::new(&values.join(", ")).parse().expect("a list");
    let entry = |entry: &ListEntry| {
        let ListEntry::Item(item) = entry else {
            panic!("{entry:?}");
        };
        let BareItem::String(name) = &item.bare_item else {
            panic!("{item:?}");
        };
        let number = item
            .params
            .get(parameter)
            .and_then(BareItem::as_integer)
            .unwrap();
        (name.as_str().to_owned(), i64::from(number))
    };
    list.iter().map(entry).collect()
}

proptest! {
    #[test]
    fn stacked_layers_of_one_name_send_the_entry_nearest_to_exhaustion(settings in settings()) {
        let response = call(&mut stacked(&settings));
        // Outer layers decide first. After a refusal the inner layers are not called.
        let outer = settings.iter().rev();
        let mut asked: Vec<(&Setting, Option<u64>)> = Vec::new();
        for setting in outer {
            let left = setting.burst.checked_sub(setting.spent + 1);
            asked.push((setting, left));
            if left.is_none() {
                break;
            }
        }
        let mut nearest = BTreeMap::new();
        // The inner layer writes first, and keeps the entry on a tie.
        for (setting, left) in asked.iter().rev() {
            let left = left.unwrap_or(0) as i64;
            let best = nearest.entry(setting.name.to_owned()).or_insert((left, setting.burst as i64));
            if left < best.0 {
                *best = (left, setting.burst as i64);
            }
        }
        let names = [HeaderName::from_static("ratelimit"), HeaderName::from_static("ratelimit-policy")];
        let entries = [parameters(response.headers(), &names[0], "r"), parameters(response.headers(), &names[1], "q")];
        for (entries, which) in entries.iter().zip([0, 1]) {
            prop_assert_eq!(entries.len(), nearest.len(), "{:?}", response.headers());
            for (name, (left, burst)) in &nearest {
                let number = [left, burst][which];
                // If several have equal remaining units, either burst is right: the wait decides.
                let leaving = asked.iter().filter(|(setting, other)| setting.name == name && other.unwrap_or(0) as i64 == *left);
                let bursts: Vec<_> = leaving.map(|(setting, _)| setting.burst as i64).collect();
                let fits = |entries: &(String, i64)| entries.0 == *name && (entries.1 == *number || which == 1 && bursts.contains(&entries.1));
                prop_assert!(entries.iter().any(fits), "{} in {:?}", name, entries);
            }
        }
    }
}

/// Holds also with several limits in one layer, and beside fields written by others.
#[test]
fn an_entry_replaces_only_that_of_its_name() {
    let fields = |name: &'static str, standing: &'static str, policy: &'static str| {
        let inner = service_fn(move |_: Request<()>| {
            let mut response = Response::new(String::new());
            let headers = response.headers_mut();
            headers.append("ratelimit", HeaderValue::from_static(standing));
            headers.append("ratelimit-policy", HeaderValue::from_static(policy));
            std::future::ready(Ok::<_, Infallible>(response))
        });
        let layer = RateLimitLayer::new(TokenBucket::per_day(10))
            .named(name)
            .also(Limit::new(TokenBucket::per_day(20)).named("other"));
        let response = call(&mut BoxCloneService::new(layer.layer(inner)));
        ["ratelimit", "ratelimit-policy"].map(|field| {
            let values = response.headers().get_all(field).iter();
            let values: Vec<_> = values
                .map(|value| value.to_str().unwrap().to_owned())
                .collect();
            values.join(" | ")
        })
    };
    let ours = r#""api";r=9;t=77760, "other";r=19;t=82080"#;
    let policies = r#""api";q=10;w=86400, "other";q=20;w=86400"#;
    for (standing, policy, left) in [
        // It has fewer units left, so our entry is not written.
        (
            r#""api";r=3;t=5"#,
            r#""api";q=5;w=9"#,
            [
                r#""api";r=3;t=5 | "other";r=19;t=82080"#,
                r#""api";q=5;w=9 | "other";q=20;w=86400"#,
            ],
        ),
        // It has more units left, so our entry replaces it, and the other entries stay.
        (
            r#""api";r=90;t=5,"far";r=7"#,
            r#""far";q=8, "api";q=95"#,
            [
                r#""far";r=7 | "api";r=9;t=77760, "other";r=19;t=82080"#,
                r#""far";q=8 | "api";q=10;w=86400, "other";q=20;w=86400"#,
            ],
        ),
    ] {
        assert_eq!(fields("api", standing, policy), left);
    }
    // Another name, and another partition key.
    for (standing, policy) in [
        (r#""API";r=3"#, r#""API";q=5"#),
        (r#""api";r=3;pk=:AA==:"#, r#""api";q=5;pk=:AA==:"#),
    ] {
        let expected = [
            format!("{standing} | {ours}"),
            format!("{policy} | {policies}"),
        ];
        assert_eq!(fields("api", standing, policy), expected);
    }
}

#[test]
fn an_outcome_returns_the_nearest_of_one_name() {
    let stack = |inner: u64, outer: u64| {
        let hello = service_fn(async |request: Request<()>| {
            let outcome: &Outcome = request.extensions().get().unwrap();
            let left = outcome.get("default").unwrap().remaining().unwrap();
            Ok::<_, Infallible>(Response::new(left.to_string()))
        });
        let layer = |burst| RateLimitLayer::new(TokenBucket::per_day(1).burst(burst));
        let inner = BoxCloneService::new(layer(inner).layer(hello));
        call(&mut BoxCloneService::new(layer(outer).layer(inner))).into_body()
    };
    assert_eq!([stack(5, 9), stack(9, 5)], ["4", "4"]);
}

#[test]
fn limits_of_one_name_in_one_layer_are_an_error_when_it_is_built() {
    let limit = |name: &str| Limit::new(TokenBucket::per_day(1)).named(name);
    let layer = || {
        RateLimitLayer::new(TokenBucket::per_day(1))
            .also(limit("a"))
            .respond(Http::new().headers(Headers::Draft))
    };
    for name in ["default", "a"] {
        let error = layer().try_also(limit(name)).unwrap_err().to_string();
        assert!(
            error.contains(name) && error.contains("expected different names"),
            "{error}"
        );
        let built = std::panic::catch_unwind(|| layer().also(limit(name)));
        assert!(built.is_err(), "{name}");
    }
    assert!(layer().try_also(limit("b")).is_ok());
}
