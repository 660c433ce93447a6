//! Upstreams that send a limit in parts: no policy, no `RateLimit`, no `t`, or a name of ours.

use http::{HeaderMap, HeaderName, HeaderValue};
use proptest::prelude::*;
use tollgate::respond::{Headers, UpstreamFields};

use super::{
    DRAFT06, FORMATS, SETTINGS, annotated, checked, headers_of,
    strict::{Limit, lines, named_limits},
};

/// A member of `RateLimit` or `RateLimit-Policy`: its name and partition, units, and seconds.
#[derive(Clone, Copy, Debug)]
struct Member(&'static str, u64, Option<u64>);

impl Member {
    fn text(self, [units_key, seconds_key]: [&str; 2]) -> String {
        let Self(id, units, seconds) = self;
        let (name, partition) = id.split_once(';').unwrap_or((id, ""));
        let mut text = format!("\"{name}\";{units_key}={units}");
        if let Some(seconds) = seconds {
            text += &format!(";{seconds_key}={seconds}");
        }
        if !partition.is_empty() {
            text += &format!(";{partition}");
        }
        text
    }

    /// Fewer units are stricter, then a longer wait. An unknown one may be any.
    fn strictness(self) -> (u64, std::cmp::Reverse<u64>) {
        (self.1, std::cmp::Reverse(self.2.unwrap_or(u64::MAX)))
    }
}

/// The fields of an upstream in the current draft.
#[derive(Clone, Debug, Default)]
struct Parts {
    available: Vec<Member>,
    policies: Vec<Member>,
    /// Each member is in a line of its own.
    is_split: bool,
}

impl Parts {
    fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, keys, members) in [
            ("ratelimit", ["r", "t"], &self.available),
            ("ratelimit-policy", ["q", "w"], &self.policies),
        ] {
            let mut texts: Vec<_> = members.iter().map(|member| member.text(keys)).collect();
            if !self.is_split && !texts.is_empty() {
                texts = vec![texts.join(", ")];
            }
            for text in texts {
                let value = HeaderValue::from_str(&text).unwrap();
                headers.append(HeaderName::from_static(name), value);
            }
        }
        headers
    }

    fn ids(&self) -> Vec<&'static str> {
        let members = self.available.iter().chain(&self.policies);
        let mut ids: Vec<_> = members.map(|member| member.0).collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// The strictest of what is sent about a limit.
    fn limit(&self, id: &str) -> Limit {
        [&self.available, &self.policies].map(|members| {
            let same = members.iter().filter(|member| member.0 == id);
            let strictest = same.min_by_key(|member| member.strictness());
            strictest.map(|member| (member.1, member.2))
        })
    }
}

/// The units that a limit leaves, as far as a client can know: no more than its quota.
fn leaves(limit: &Limit) -> Option<u64> {
    limit.iter().flatten().map(|(units, _)| *units).min()
}

/// The layer's limit, with so many units left of 100 per minute.
fn ours(remaining: u64) -> Limit {
    let alone = annotated(
        HeaderMap::new(),
        Headers::Draft,
        UpstreamFields::Stricter,
        "api",
        remaining,
    );
    named_limits(&alone)["api"]
}

/// Checks that the result of the default is never less strict than the upstream or the layer.
fn check_stricter(parts: &Parts, format: Headers, remaining: u64) {
    let theirs = parts.headers();
    let after = annotated(
        theirs.clone(),
        format,
        UpstreamFields::Stricter,
        "api",
        remaining,
    );
    let what = format!("{theirs:?}, {format}, {remaining}: {after:?}");
    let read = checked(&after, format, UpstreamFields::Stricter);
    let ids = parts.ids();
    let limits = ids.iter().map(|id| parts.limit(id));
    let nearest = limits.filter_map(|limit| {
        let [available, policy] = limit;
        let wait = available
            .and_then(|(_, wait)| wait)
            .or(policy.and_then(|(_, window)| window));
        Some(Member("", leaves(&limit)?, wait))
    });
    let nearest = nearest.min_by_key(|limit| limit.strictness());
    let least = nearest.map_or(remaining, |nearest| nearest.1.min(remaining));
    // The reset of the limit that is sent; of several ones that leave as much, the latest.
    let reset = nearest.map_or(30, |nearest| {
        let theirs = nearest.2.unwrap_or(30);
        match nearest.1.cmp(&remaining) {
            std::cmp::Ordering::Less => theirs,
            std::cmp::Ordering::Equal => theirs.max(30),
            std::cmp::Ordering::Greater => 30,
        }
    });
    match format {
        Headers::Draft => {
            let after = named_limits(&after);
            let ours = ours(remaining);
            assert!(after["api"].iter().all(Option::is_some), "{what}");
            let expected_ids = ids.iter().copied().chain(["api"]);
            for id in expected_ids.clone() {
                let theirs = parts.limit(id);
                let both = match id {
                    "api" => vec![theirs, ours],
                    _ => vec![theirs],
                };
                let least = both.iter().filter_map(leaves).min();
                assert_eq!(leaves(&after[id]), least, "{id}: {what}");
                match (id, theirs) {
                    // Both are whole: one of them is kept.
                    ("api", [Some(_), Some(_)]) => assert!(both.contains(&after[id]), "{what}"),
                    ("api", _) => {
                        let quotas = both.iter().filter_map(|[_, policy]| *policy);
                        let quota = quotas.map(|(quota, _)| quota).min();
                        assert_eq!(after[id][1].map(|(quota, _)| quota), quota, "{what}");
                    }
                    // Of other names, all is kept that was sent.
                    _ => assert_eq!(after[id], theirs, "{what}"),
                }
            }
            assert!(
                after
                    .keys()
                    .all(|id| expected_ids.clone().any(|other| other == id)),
                "{what}"
            );
        }
        Headers::Draft07 => {
            let [limit, left, wait] = read.draft07.unwrap();
            assert_eq!((left, wait), (least, reset), "{what}");
            assert!(limit >= left, "{what}");
            let policies = lines(&after, "ratelimit-policy").join(", ");
            let quotas: Vec<_> = policies
                .split(", ")
                .map(|policy| policy.split(';').next().unwrap().parse().unwrap())
                .collect();
            let expected = parts.policies.iter().map(|policy| policy.1).chain([100]);
            assert_eq!(quotas, expected.collect::<Vec<u64>>(), "{what}");
            assert!(quotas.contains(&limit), "{what}");
        }
        Headers::Draft06 => {
            let [limit, left, wait] = read.draft06.unwrap().map(Option::unwrap);
            if theirs.contains_key("ratelimit") {
                assert_eq!([limit, left, wait], [100, remaining, 30], "{what}");
                for name in ["ratelimit", "ratelimit-policy"] {
                    assert_eq!(lines(&after, name), lines(&theirs, name), "{what}");
                }
            } else {
                assert_eq!((left, wait), (least, reset), "{what}");
                assert!(limit >= left, "{what}");
                let policies = lines(&after, "ratelimit-policy").join(", ");
                let mut quotas = policies.split(", ").map(|policy| policy.split(';').next());
                let limit = limit.to_string();
                assert!(
                    policies.is_empty() || quotas.any(|quota| quota == Some(&limit)),
                    "{what}"
                );
            }
        }
        _ => {
            let numbers = read.legacy.unwrap().map(Option::unwrap);
            assert_eq!(numbers[..2], [100, remaining], "{what}");
            for name in ["ratelimit", "ratelimit-policy"] {
                assert_eq!(lines(&after, name), lines(&theirs, name), "{what}");
            }
        }
    }
}

fn check(parts: &Parts, format: Headers, setting: UpstreamFields, remaining: u64) {
    let theirs = parts.headers();
    let alone = annotated(HeaderMap::new(), format, setting, "api", remaining);
    let after = annotated(theirs.clone(), format, setting, "api", remaining);
    match setting {
        UpstreamFields::Stricter => check_stricter(parts, format, remaining),
        // A policy does not say how much remains.
        UpstreamFields::Keep if !parts.available.is_empty() => assert_eq!(after, theirs),
        _ => assert_eq!(after, alone, "{theirs:?}"),
    }
}

#[test]
fn a_limit_in_parts_is_never_reported_less_strictly() {
    let parts_of = |id, units: &[u64], seconds: &[Option<u64>]| {
        let of = |units: &u64| {
            let members = seconds.iter().map(|seconds| Member(id, *units, *seconds));
            members.collect::<Vec<_>>()
        };
        let members = units.iter().flat_map(of);
        let mut parts = vec![Vec::new()];
        parts.extend(members.map(|member| vec![member]));
        parts
    };
    for id in ["api", "theirs", "upstream", "api;pk=:AA==:"] {
        for available in parts_of(id, &[0, 3, 50, 99], &[None, Some(9), Some(99)]) {
            for policies in parts_of(id, &[3, 50, 200], &[None, Some(60)]) {
                let parts = Parts {
                    available: available.clone(),
                    policies,
                    is_split: false,
                };
                for format in FORMATS {
                    for setting in SETTINGS {
                        check(&parts, format, setting, 50);
                    }
                }
            }
        }
    }
}

/// Policies of draft-07 and draft-06, alone and beside what cannot be read.
#[test]
fn a_numbered_policy_alone_is_a_limit() {
    for (policies, quota, window) in [("3;w=60", 3, 60), ("500;w=9, 3;w=60, 40", 3, 60)] {
        for garbage in [None, Some("garbage\"")] {
            let mut theirs = vec![("ratelimit-policy", policies)];
            theirs.extend(garbage.map(|value| ("ratelimit", value)));
            let after = |format, remaining| {
                let theirs = headers_of(&theirs);
                annotated(theirs, format, UpstreamFields::Stricter, "api", remaining)
            };
            let draft = named_limits(&after(Headers::Draft, 50));
            assert_eq!(draft["upstream"], [None, Some((quota, Some(window)))]);
            assert_eq!(draft["api"], ours(50));
            let stricter = |format, remaining| {
                checked(&after(format, remaining), format, UpstreamFields::Stricter)
            };
            let draft07 = |remaining| stricter(Headers::Draft07, remaining).draft07.unwrap();
            assert_eq!(draft07(50), [quota, quota, window]);
            assert_eq!(draft07(2), [100, 2, 30]);
        }
        let after = |remaining| {
            let theirs = headers_of(&[("ratelimit-policy", policies)]);
            annotated(
                theirs,
                Headers::Draft06,
                UpstreamFields::Stricter,
                "api",
                remaining,
            )
        };
        let values = |headers: &HeaderMap| DRAFT06.map(|name| lines(headers, name).join(" | "));
        let theirs = after(50);
        assert_eq!(
            values(&theirs),
            [quota, quota, window].map(|n| n.to_string())
        );
        assert_eq!(lines(&theirs, "ratelimit-policy"), [policies]);
        let ours = after(2);
        assert_eq!(values(&ours), ["100", "2", "30"]);
        assert!(!ours.contains_key("ratelimit-policy"));
    }
}

/// A limit of 10 beside a policy of 100 is a contradiction.
#[test]
fn the_policies_of_draft_06_are_those_of_the_limit_that_is_sent() {
    let [limit, remaining, reset] = DRAFT06;
    for (left, expected) in [("3", vec!["500;w=60"]), ("70", vec![])] {
        let theirs = headers_of(&[
            (limit, "500"),
            (remaining, left),
            (reset, "5"),
            ("ratelimit-policy", "500;w=60"),
        ]);
        let after = annotated(
            theirs,
            Headers::Draft06,
            UpstreamFields::Stricter,
            "api",
            50,
        );
        assert_eq!(lines(&after, "ratelimit-policy"), expected);
        let sent = if expected.is_empty() { "100" } else { "500" };
        assert_eq!(lines(&after, limit), [sent]);
    }
}

fn members() -> impl Strategy<Value = Vec<Member>> {
    let id = prop::sample::select(vec![
        "api",
        "upstream",
        "a",
        "b",
        "a;pk=:AA==:",
        "api;pk=:AA==:",
    ]);
    let units = prop::sample::select(vec![0, 1, 5, 49, 50, 51, 100, 200]);
    let seconds = prop::option::of(prop::sample::select(vec![1, 29, 30, 31, 60, 3600]));
    let member = (id, units, seconds);
    let member = member.prop_map(|(id, units, seconds)| Member(id, units, seconds));
    prop::collection::vec(member, 0..7)
}

proptest! {
    /// No result is less strict than the stricter one of both, each name is there once, and ours
    /// has its policy.
    #[test]
    fn any_members_with_names_of_a_small_set(
        (available, policies, is_split) in (members(), members(), any::<bool>()),
        remaining in prop::sample::select(vec![0_u64, 5, 50, 100]),
        format in prop::sample::select(FORMATS.to_vec()),
        setting in prop::sample::select(SETTINGS.to_vec()),
    ) {
        let parts = Parts { available, policies, is_split };
        check(&parts, format, setting, remaining);
    }
}
