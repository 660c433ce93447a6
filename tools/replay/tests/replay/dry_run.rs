//! One access log through a layer with a candidate, and through `--compare`: a dry run of tomorrow
//! counts as a replay of yesterday.

use std::convert::Infallible;

use futures_util::FutureExt;
use http::{Request, Response};
use proptest::prelude::*;
use replay::{
    comparison::{ComparedRule, Comparison},
    engine::Call,
};
use tollgate::{
    AnyRule, Cost, DryRunReport, RateLimitLayer, Timestamp, key::Key, store::LocalBuilder,
    time::ManualClock,
};
use tower::{ServiceBuilder, ServiceExt, service_fn};

use crate::program::replay;

/// Rules that answer at once.
const LIVE: [&str; 5] = [
    "token-bucket 1/10s burst=3",
    "token-bucket 2/10s",
    "fixed-window 3/30s",
    "sliding-window 4/40s slices=4",
    "sliding-log 2/20s",
];

/// Rules of candidates. Some of them delay.
const NEXT: [&str; 6] = [
    "token-bucket 1/5s burst=2",
    "leaky-bucket 1/5s queue=2",
    "fixed-window 2/30s",
    "sliding-window 3/40s",
    "sliding-log 3/30s",
    "token-bucket 1/5s & fixed-window 4/1m",
];

/// The seconds of 2000-10-10T13:00:00Z since the Unix epoch.
const ONE_PM: u64 = 971_182_800;

/// Returns a log of requests, each with its second after one o'clock and its client.
fn log(requests: &[(u64, u64)]) -> String {
    let line = |(at, client): &(u64, u64)| {
        let (minute, second) = (at / 60, at % 60);
        let time = format!("10/Oct/2000:13:{minute:02}:{second:02} +0000");
        format!("10.0.0.{client} - - [{time}] \"GET / HTTP/1.1\" 200 1\n")
    };
    requests.iter().map(line).collect()
}

/// Returns the host and the time of a line of that log.
fn read(line: &str) -> (&str, Timestamp) {
    let (host, rest) = line.split_once(' ').expect("a host");
    let mut time = rest.split(':').skip(2);
    let mut number = || {
        time.next().expect("a number")[..2]
            .parse::<u64>()
            .expect("two digits")
    };
    let (minute, second) = (number(), number());
    let at = ONE_PM + 60 * minute + second;
    (host, Timestamp::from_nanos(at * 1_000_000_000))
}

/// Sends each line through a layer, with the clock at the line's time. Returns the report of the
/// candidate.
fn through_a_layer(live: &str, next: &str, log: &str) -> DryRunReport {
    // A store's time never falls, so it begins with the log.
    let clock = ManualClock::new(Timestamp::from_nanos(ONE_PM * 1_000_000_000));
    let rule = |text: &str| text.parse::<AnyRule>().expect("a rule");
    let layer = RateLimitLayer::new(rule(live))
        .named("live")
        .key(|request: &Request<String>| Key::from(request.body().as_str()))
        .store(LocalBuilder::new().clock(clock.clone()).build())
        .candidate("next", rule(next));
    let service = ServiceBuilder::new()
        .layer(layer.clone())
        .service(service_fn(async |_: Request<String>| {
            Ok::<_, Infallible>(Response::new(String::new()))
        }));
    for line in log.lines() {
        let (host, at) = read(line);
        clock.set(at);
        let response = service.clone().oneshot(Request::new(host.to_owned()));
        let answered = response.now_or_never().expect("an answer at once");
        assert!(answered.is_ok());
    }
    layer.dry_run_report("next").expect("a dry run")
}

/// Returns the counts of both rules by the library.
fn by_the_library(live: &str, next: &str, log: &str) -> [ComparedRule; 2] {
    let rules = [live, next].map(|text| text.parse::<AnyRule>().expect("a rule"));
    let mut comparison = Comparison::new(rules, None);
    for line in log.lines() {
        let (host, at) = read(line);
        let key = host.as_bytes();
        comparison.spend(
            Call {
                at,
                key,
                class: None,
            },
            Cost::ONE,
        );
    }
    comparison.rules()
}

/// Returns the counts of both rules in a line of the program's report.
fn in_the_report(report: &str, name: &str) -> [u64; 2] {
    let (_, comparison) = report.split_once("\nCompared with").expect("a comparison");
    let line = comparison
        .lines()
        .find_map(|line| line.trim().strip_prefix(name));
    let words = line.expect("the line").split_whitespace();
    // Shares have a point, and a sign after them.
    let counts = words.filter(|word| word.bytes().all(|byte| byte.is_ascii_digit()));
    let counts: Vec<u64> = counts.map(|word| word.parse().expect("a count")).collect();
    counts.try_into().expect("two counts")
}

proptest! {
    // Each case starts a program.
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn a_dry_run_counts_as_a_replay_of_the_same_log(
        live in prop::sample::select(&LIVE[..]),
        next in prop::sample::select(&NEXT[..]),
        // Requests up to nine seconds apart, of six clients.
        requests in prop::collection::vec((0..9_u64, 0..6_u64), 0..200),
    ) {
        let mut at = 0;
        let requests: Vec<_> = requests.into_iter().map(|(after, client)| {
            at += after;
            (at, client)
        }).collect();
        let log = log(&requests);
        let dry = through_a_layer(live, next, &log);
        let [of_live, of_next] = by_the_library(live, next, &log);
        prop_assert_eq!(dry.admitted, of_next.admitted + of_next.delayed);
        prop_assert_eq!((dry.delayed, dry.refused), (of_next.delayed, of_next.refused));
        prop_assert_eq!(dry.refused_alone, of_next.refused_alone);
        prop_assert_eq!(dry.admitted_alone, of_live.refused_alone);
        prop_assert_eq!(dry.both_refused, of_live.refused - of_live.refused_alone);
        prop_assert_eq!(dry.both_admitted, of_live.admitted - of_next.refused_alone);
        prop_assert_eq!(dry.refused_keys, of_next.refused_keys);

        let end = replay(&["--format=combined", "--rule", live, "--compare", next], &log);
        prop_assert_eq!((end.code, &*end.errors), (Some(0), ""));
        let counts = |name| in_the_report(end.text(), name);
        prop_assert_eq!(counts("refused, but not by the other"), [dry.admitted_alone, dry.refused_alone]);
        prop_assert_eq!(counts("keys refused at least once")[1], dry.refused_keys);
    }
}

#[test]
fn the_time_of_a_line_is_read() {
    let at = Timestamp::from_nanos(971_211_336_000_000_000 - 7 * 3_600_000_000_000);
    // 13:55:36 in London, seven hours before it was so in the example of Apache's documentation.
    assert_eq!(read(&log(&[(55 * 60 + 36, 7)])), ("10.0.0.7", at));
}
