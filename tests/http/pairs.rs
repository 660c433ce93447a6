//! The fields of several rules on one key, for all pairs of algorithms.

use std::{convert::Infallible, time::Duration};

use http::{HeaderMap, Request, Response};
use tollgate::{
    AnyRule, Cost, Decision, Outcome, Policy, Quota, Timestamp,
    algorithm::Algorithm,
    respond::{Headers, Http, Refusal, Respond},
};

/// Slow and fast rules of each algorithm.
pub(crate) const RULES: [&str; 18] = [
    "token-bucket 1/s burst=5",
    "token-bucket 100/1m burst=150",
    "leaky-bucket 10/s queue=5",
    "leaky-bucket 7/3s max-wait=500ms",
    "fixed-window 10/1h",
    "fixed-window 9/5s from=first-call",
    "sliding-window 10/s",
    "sliding-window 30/10s slices=7",
    "sliding-log 10/s",
    "sliding-log 15/4s",
    "warm-up 20/s over=3s",
    "warm-up 12/s over=4s cold=2.5",
    "warm-up-spaced 5/s over=2s",
    "warm-up-spaced 20/s over=3s cold=2 max-wait=700ms",
    "cascade 5/s burst=4 > 3/s burst=10",
    "cascade 5/s burst=8",
    "three-color 5/s peak=12/s peak-burst=20",
    "three-color 5/s burst=20 peak=6/s",
];

fn rule(text: &str) -> AnyRule {
    text.parse().unwrap()
}

/// Returns the fields of a response to a request that was decided like this.
fn fields(headers: Headers, decision: Decision) -> HeaderMap {
    let (respond, mut request) = (Http::new().headers(headers), Request::new(()));
    let mut outcome = Outcome::new();
    outcome.push(Policy::new("api"), decision);
    let mut response = Response::new(String::new());
    if !decision.is_admitted() {
        let refused: Result<Response<String>, Infallible> =
            respond.refuse(request, Refusal::new(outcome));
        return refused.unwrap().headers().clone();
    }
    let annotation =
        Respond::<_, Response<String>, Infallible>::admit(&respond, &mut request, outcome);
    <Http as Respond<Request<()>, _, Infallible>>::annotate(annotation, &mut response);
    response.headers().clone()
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers[name].to_str().unwrap()
}

/// Returns a parameter of a `RateLimit` with one member, whose name contains no `;`.
fn parameter(field: &str, name: &str) -> Option<u64> {
    let mut parameters = field.split(';').skip(1);
    let value = parameters.find_map(|parameter| parameter.strip_prefix(name)?.strip_prefix('='));
    value.map(|value| value.parse().unwrap())
}

/// Returns `true` if `units` in `seconds` are no more than a quota.
fn is_within(units: u64, seconds: u64, quota: Quota) -> bool {
    let used = u128::from(units) * u128::from(quota.period_nanos());
    used <= u128::from(seconds) * u128::from(quota.amount()) * 1_000_000_000
}

/// A pair is announced by the limit and the quota of one of its rules, as it was written.
fn assert_announces_one_of(decision: Decision, pair: &str, policies: &[String], limits: &[u64]) {
    let draft = fields(Headers::Draft, decision);
    let policy = text(&draft, "ratelimit-policy").to_owned();
    assert!(
        policies.contains(&policy),
        "{pair}: {policy} is none of {policies:?}"
    );
    // One rule of the policy, whatever the state.
    assert_eq!(policy, policies[0], "{pair}");

    let available = text(&draft, "ratelimit");
    let r = parameter(available, "r").unwrap();
    let remaining = decision.remaining().unwrap();
    assert!(r <= remaining, "{pair}: {available} of {remaining}");
    if let Some(t) = parameter(available, "t") {
        let quota = decision.quota().unwrap();
        assert!(is_within(r, t, quota), "{pair}: {available} of {quota}");
    }

    let triple = fields(Headers::LegacyDelta, decision);
    let limit: u64 = text(&triple, "x-ratelimit-limit").parse().unwrap();
    assert_eq!(limit, limits[0], "{pair}");
    let window = fields(Headers::Draft07, decision);
    let expected = policy.replacen(r#""api";q="#, "", 1);
    assert_eq!(text(&window, "ratelimit-policy"), expected, "{pair}");
}

fn assert_pair<R: Algorithm>(pair: &R, name: &str, members: [&AnyRule; 2]) {
    let begin = Timestamp::from_nanos(1_800_000_000_000_000_000);
    let looks = members.map(|member| member.look(None, begin));
    let mut members: Vec<_> = looks
        .iter()
        .map(|look| (look.quota().unwrap(), look.limit().unwrap(), look))
        .collect();
    // The slowest rule first, by ratios.
    members.sort_by(|(a, a_limit, _), (b, b_limit, _)| {
        let rate = |quota: &Quota, other: &Quota| {
            u128::from(quota.amount()) * u128::from(other.period_nanos())
        };
        rate(a, b).cmp(&rate(b, a)).then(a_limit.cmp(b_limit))
    });
    let policies: Vec<_> = members
        .iter()
        .map(|(.., look)| text(&fields(Headers::Draft, **look), "ratelimit-policy").to_owned())
        .collect();
    let limits: Vec<_> = members.iter().map(|(_, limit, _)| *limit).collect();
    let (mut state, mut now) = (None, begin);
    assert_announces_one_of(pair.look(None, now), name, &policies, &limits);
    for (units, millis) in [
        (1, 0),
        (2, 100),
        (1, 0),
        (4, 3_000),
        (1, 1),
        (100, 700),
        (1, 0),
    ] {
        now = now.saturating_add(Duration::from_millis(millis));
        let cost = Cost::new(units).unwrap();
        let decision = pair.step(&mut state, now, cost).decision();
        assert_announces_one_of(decision, name, &policies, &limits);
        assert_announces_one_of(pair.look(state.as_ref(), now), name, &policies, &limits);
    }
}

#[test]
fn a_pair_announces_the_limit_and_the_quota_of_one_rule() {
    // The message names all algorithms. Calls in flight have a limit of their own.
    let unknown = "unknown 1/s".parse::<AnyRule>().unwrap_err().to_string();
    let known = unknown.split_once("expected").unwrap().1;
    let names = known.split([' ', ',', '`', ';']);
    let names = names.filter(|name| *name != "in-flight");
    for name in names.filter(|name| name.contains('-') || *name == "cascade") {
        let is_name = |rule: &&str| rule.split(' ').next() == Some(name);
        assert!(RULES.iter().any(is_name), "{name}: {unknown}");
    }
    for a in RULES {
        for b in RULES {
            let members = [rule(a), rule(b)];
            let text = format!("{a} & {b}");
            assert_pair(&rule(&text), &text, [&members[0], &members[1]]);
            let pair = (members[0].clone(), members[1].clone());
            assert_pair(&pair, &text, [&members[0], &members[1]]);
        }
    }
}

#[test]
fn three_rules_announce_the_slowest() {
    let mut state = None;
    let rule = rule("fixed-window 10/1h & token-bucket 1/s burst=5 & sliding-window 100/1s");
    let noon = Timestamp::from_nanos(1_800_000_000_000_000_000);
    let decision = rule.step(&mut state, noon, Cost::ONE).decision();
    let headers = fields(Headers::Draft, decision);
    assert_eq!(text(&headers, "ratelimit-policy"), r#""api";q=10;w=3600"#);
    assert_eq!(text(&headers, "ratelimit"), r#""api";r=4;t=1440"#);
    // A cost is still limited by the smallest capacity.
    assert_eq!(
        (decision.limit(), decision.announced_limit()),
        (Some(5), Some(10))
    );
}
