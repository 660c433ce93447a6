//! Random calls through a layer with a live limit, a candidate and a third rule on a dry run.

use std::time::Duration;

use proptest::prelude::*;
use tollgate::{
    Limit, Policy, RateLimitLayer,
    respond::{Headers, Http},
    time::{Clock, ManualClock},
};

use super::{
    ByClient, Call, Calls, Client, call, local,
    model::{Alone, Journal, Would},
    rule, service, units,
};

/// Rules that answer at once.
const PROMPT: [&str; 6] = [
    "token-bucket 5/1s",
    "token-bucket 3/1s burst=7",
    "fixed-window 5/1s",
    "sliding-window 4/1s",
    "sliding-log 4/1s",
    "cascade 1/1s burst=2 > 2/1s burst=3",
];

/// Rules for dry runs. Some of them delay.
const ANY: [&str; 8] = [
    "token-bucket 5/1s",
    "token-bucket 2/1s burst=9",
    "leaky-bucket 5/1s queue=3",
    "warm-up-spaced 4/1s over=2s max-wait=1s",
    "fixed-window 3/1s",
    "sliding-window 6/1s slices=3",
    "sliding-log 2/1s",
    "token-bucket 9/1s & fixed-window 4/1s",
];

const HEADERS: [Headers; 6] = [
    Headers::Draft,
    Headers::Draft07,
    Headers::Draft06,
    Headers::Legacy,
    Headers::LegacyDelta,
    Headers::None,
];

/// Calls, each with the milliseconds since the one before.
fn calls() -> impl Strategy<Value = Vec<(u64, Call)>> {
    let client = prop_oneof![
        20 => (0..4_u64).prop_map(Client::Known),
        1 => Just(Client::Exempt),
        1 => Just(Client::Unknown),
    ];
    let one = (
        0..300_u64,
        client,
        prop_oneof![3 => Just(1), 1 => 1..12_u64],
    );
    let one = one.prop_map(|(after, client, units)| (after, Call { client, units }));
    prop::collection::vec(one, 0..120)
}

/// Returns what a client receives: the status, the fields, the body, and the names in the outcome
/// of the handler.
fn received(service: &mut Calls, of: Call) -> impl PartialEq + std::fmt::Debug + use<> {
    let response = call(service, http::Request::new(of));
    let (parts, body) = response.into_parts();
    let outcome = parts.extensions.get::<tollgate::Outcome>();
    let outcome = outcome.map(|outcome| format!("{outcome:?}"));
    (parts.status, parts.headers, body, outcome)
}

proptest! {
    #[test]
    fn dry_runs_count_as_each_rule_alone_and_change_no_response(
        live in prop::sample::select(&PROMPT[..]),
        next in prop::sample::select(&ANY[..]),
        third in prop::sample::select(&ANY[..]),
        headers in prop::sample::select(&HEADERS[..]),
        calls in calls(),
    ) {
        let clock = ManualClock::default();
        let respond = Http::new().headers(headers);
        let alone = || {
            RateLimitLayer::new(rule(live))
                .named("live")
                .key(ByClient)
                .cost(units)
                .store(local(&clock))
                .respond(respond.clone())
        };
        let layer = alone()
            .candidate("next", rule(next))
            .also(
                Limit::new(rule(third))
                    .key(ByClient)
                    .cost(units)
                    .dry_run()
                    .compared_with(Policy::new("next"))
                    // A policy that is set after the dry run is that of the dry run.
                    .named("third"),
            );
        let mut tried: Calls = service!(layer);
        let mut untried: Calls = service!(alone());
        let [mut live, mut next, mut third] = [live, next, third].map(|text| Alone::new(rule(text)));
        let (mut of_next, mut of_third) = (Journal::default(), Journal::default());
        for (after, call) in calls {
            clock.advance(Duration::from_millis(after));
            prop_assert_eq!(received(&mut tried, call), received(&mut untried, call));
            // The live limit refuses a call without a key before anything is asked.
            if let Client::Known(client) = call.client {
                let [live, next, third] = [&mut live, &mut next, &mut third]
                    .map(|rule| rule.decide(clock.now(), client, call.units));
                of_next.note(client, next, Some(live));
                of_third.note(client, third, Some(next));
            }
        }
        prop_assert_eq!(layer.dry_run_report("next"), Some(of_next.report()));
        prop_assert_eq!(layer.dry_run_report("third"), Some(of_third.report()));
        prop_assert_eq!(layer.dry_run_report("live"), None);
    }

    /// Two live limits are charged together or not at all. A dry run is charged whatever they do,
    /// and compared with one of them.
    #[test]
    fn a_dry_run_beside_two_live_limits_is_compared_with_one_of_them(
        other in prop::sample::select(&PROMPT[..]),
        next in prop::sample::select(&ANY[..]),
        calls in calls(),
    ) {
        let clock = ManualClock::default();
        let limit = |text, name| Limit::new(rule(text)).named(name).key(ByClient).cost(units);
        // One unit for ever: it refuses nearly everything, so that the other one is seldom charged.
        let scarce = "token-bucket 1/1d burst=3";
        let layer = RateLimitLayer::new(rule(scarce))
            .named("scarce")
            .key(ByClient)
            .cost(units)
            .store(local(&clock))
            .also(limit(other, "other"))
            .also(limit(next, "next").dry_run().compared_with(Policy::new("other")));
        let mut service: Calls = service!(layer);
        // Each live limit decides on what the pair has spent.
        let looks = local(&clock);
        let (scarce, other) = (rule(scarce), rule(other));
        let policies = ["scarce", "other"].map(Policy::new);
        let (mut next, mut journal) = (Alone::new(rule(next)), Journal::default());
        for (after, of) in calls {
            clock.advance(Duration::from_millis(after));
            let response = call(&mut service, http::Request::new(of));
            let Client::Known(client) = of.client else { continue };
            let key = tollgate::key::Key::from(client);
            let passes = |policy: &Policy, rule: &tollgate::AnyRule| {
                looks.look(policy, rule, &key).remaining().unwrap() >= of.units
            };
            let (a, b) = (passes(&policies[0], &scarce), passes(&policies[1], &other));
            prop_assert_eq!(response.status().is_success(), a && b);
            if a && b {
                let cost = tollgate::Cost::new(of.units).unwrap();
                for (policy, rule) in [(&policies[0], &scarce), (&policies[1], &other)] {
                    looks.decide(&tollgate::store::driver::Ask::new(policy, rule, key, cost));
                }
            }
            let live = if b { Would::Admit } else { Would::Refuse };
            journal.note(client, next.decide(clock.now(), client, of.units), Some(live));
        }
        prop_assert_eq!(layer.dry_run_report("next"), Some(journal.report()));
    }
}

/// More distinct keys than the sketch counts exactly.
#[test]
fn many_refused_keys_are_estimated() {
    const CLIENTS: u64 = 5_000;
    let clock = ManualClock::default();
    let layer = RateLimitLayer::new(rule("token-bucket 2/1d"))
        .named("live")
        .key(ByClient)
        .store(local(&clock))
        .candidate("next", rule("token-bucket 1/1d"));
    let mut service: Calls = service!(layer);
    for client in 0..CLIENTS {
        for _ in 0..2 {
            call(&mut service, super::client(client));
        }
    }
    let report = layer.dry_run_report("next").unwrap();
    assert_eq!((report.refused, report.refused_alone), (CLIENTS, CLIENTS));
    // Five standard errors of 3.2 %.
    for keys in [report.refused_keys, report.refused_alone_keys] {
        assert!(100 * keys.abs_diff(CLIENTS) < 16 * CLIENTS, "{keys}");
    }
}

/// A dry run by itself: no key is counted and proceeds, and an exempt request is not counted.
#[test]
fn a_request_without_a_key_proceeds_and_is_counted() {
    let clock = ManualClock::default();
    let layer = RateLimitLayer::new(rule("token-bucket 1/1d"))
        .key(ByClient)
        .store(local(&clock))
        .dry_run();
    let mut service: Calls = service!(layer);
    for client in [
        Client::Unknown,
        Client::Exempt,
        Client::Known(1),
        Client::Known(1),
    ] {
        let request = http::Request::new(Call { client, units: 1 });
        assert!(call(&mut service, request).status().is_success());
    }
    let report = layer.dry_run_report("default").unwrap();
    let counts = (
        report.admitted,
        report.refused,
        report.missing_key,
        report.undecided,
    );
    assert_eq!(counts, (1, 1, 1, 0));
    assert_eq!(layer.misconfigured(), 0);
}
