//! The fields that tell a client how its limits stand, in each of their shapes.

use std::sync::OnceLock;

use http::{HeaderMap, HeaderName, HeaderValue, header::RETRY_AFTER};
use smallvec::SmallVec;

use super::{
    draft,
    headers::Headers,
    number::{self, Buffer},
    older::{self, Numbers},
};
use crate::{
    decision::Decision,
    outcome::{Outcome, Policy},
    quota::Quota,
};

const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// What an `Access-Control-Expose-Headers` (WHATWG Fetch, CORS protocol) should name.
///
/// Without it browsers hide these fields from scripts of other origins. All fields that this
/// crate writes in any setting are in it; naming one that is never sent does no harm.
/// With tower-http: `CorsLayer::new().expose_headers(EXPOSED_HEADERS)`.
///
/// ```
/// use tollgate::respond::EXPOSED_HEADERS;
///
/// assert!(EXPOSED_HEADERS.iter().any(|name| name == "ratelimit"));
/// ```
pub const EXPOSED_HEADERS: [HeaderName; 13] = [
    RETRY_AFTER,
    RATELIMIT,
    RATELIMIT_POLICY,
    older::LIMIT,
    older::REMAINING,
    older::RESET,
    older::X_LIMIT,
    older::X_REMAINING,
    older::X_RESET,
    super::grpc::STATUS,
    super::grpc::MESSAGE,
    super::grpc::DETAILS,
    super::grpc::PUSHBACK,
];

/// The fields for one response, made when the decision fell.
///
/// What [`Http`](super::Http) and [`Grpc`](super::Grpc) mark an admitted response with.
#[derive(Debug)]
pub struct Fields(Shape);

#[derive(Debug)]
enum Shape {
    Draft {
        standing: HeaderValue,
        policies: HeaderValue,
    },
    Draft07 {
        remaining: u64,
        standing: HeaderValue,
        policies: HeaderValue,
    },
    Triple {
        prefixed: bool,
        numbers: Numbers,
    },
    Nothing,
}

/// The `RateLimit-Policy` of a layer with a single limit, which hardly ever changes.
pub(super) type Cache = OnceLock<Cached>;

#[derive(Debug)]
pub(super) struct Cached {
    policy: Policy,
    limit: u64,
    quota: Quota,
    value: HeaderValue,
}

/// A decision with numbers.
struct Entry<'a> {
    policy: &'a Policy,
    decision: &'a Decision,
    limit: u64,
    quota: Quota,
}

impl Fields {
    /// The fields of all decisions that carry numbers; none for what is undecided.
    pub(super) fn of(outcome: &Outcome, headers: Headers, cache: &Cache) -> Self {
        if headers == Headers::None {
            return Self(Shape::Nothing);
        }
        let mut entries: SmallVec<[Entry<'_>; 2]> = outcome
            .iter()
            .filter(|(_, decision)| !decision.is_undecided())
            .filter_map(|(policy, decision)| {
                let (limit, quota) = (decision.limit()?, decision.quota()?);
                Some(Entry {
                    policy,
                    decision,
                    limit,
                    quota,
                })
            })
            .collect();
        if entries.len() > 1 {
            entries.sort_by(|a, b| a.decision.nearness(b.decision));
        }
        Self(Shape::of(&entries, headers, cache).unwrap_or(Shape::Nothing))
    }

    /// Writes the fields beside those of an inner layer, or in place of them where
    /// there is room for one policy only and this one leaves less.
    pub(super) fn write(self, headers: &mut HeaderMap) {
        // A map too full to take a field (32768 of them) is left as it is.
        match self.0 {
            Shape::Draft { standing, policies } => {
                let _ = headers.try_append(RATELIMIT, standing);
                let _ = headers.try_append(RATELIMIT_POLICY, policies);
            }
            Shape::Draft07 {
                remaining,
                standing,
                policies,
            } => {
                let others = headers.get(RATELIMIT).and_then(older::remaining_in);
                if others.is_none_or(|others| remaining < others) {
                    let _ = headers.try_insert(RATELIMIT, standing);
                }
                let _ = headers.try_append(RATELIMIT_POLICY, policies);
            }
            Shape::Triple { prefixed, numbers } => numbers.write(headers, prefixed),
            Shape::Nothing => {}
        }
    }
}

impl Shape {
    fn of(entries: &[Entry<'_>], headers: Headers, cache: &Cache) -> Option<Self> {
        let nearest = entries.first()?.decision;
        Some(match headers {
            Headers::Draft => {
                let standing = list(entries, |buffer, entry| {
                    draft::push_standing(buffer, entry.policy, entry.decision, &entry.quota);
                })?;
                let policies = policies(entries, cache, |buffer, entry| {
                    draft::push_policy(buffer, entry.policy, entry.limit, &entry.quota);
                })?;
                Self::Draft { standing, policies }
            }
            Headers::Draft07 => {
                let numbers = Numbers::of(nearest, headers);
                Self::Draft07 {
                    remaining: numbers.remaining,
                    standing: numbers.dictionary()?,
                    policies: policies(entries, cache, |buffer, entry| {
                        older::push_policy(buffer, entry.limit, &entry.quota);
                    })?,
                }
            }
            Headers::Draft06 | Headers::Legacy | Headers::LegacyDelta => Self::Triple {
                prefixed: headers != Headers::Draft06,
                numbers: Numbers::of(nearest, headers),
            },
            Headers::None => Self::Nothing,
        })
    }
}

fn list(entries: &[Entry<'_>], push: impl Fn(&mut Buffer, &Entry<'_>)) -> Option<HeaderValue> {
    let mut buffer = Buffer::new();
    for (index, entry) in entries.iter().enumerate() {
        if index > 0 {
            buffer.extend_from_slice(b", ");
        }
        push(&mut buffer, entry);
    }
    number::value_of(&buffer)
}

fn policies(
    entries: &[Entry<'_>],
    cache: &Cache,
    push: impl Fn(&mut Buffer, &Entry<'_>),
) -> Option<HeaderValue> {
    let [
        Entry {
            policy,
            limit,
            quota,
            ..
        },
    ] = entries
    else {
        return list(entries, push);
    };
    let cached = cache.get();
    if let Some(cached) = cached {
        if (&cached.policy, cached.limit, cached.quota) == (*policy, *limit, *quota) {
            return Some(cached.value.clone());
        }
    }
    let value = list(entries, push)?;
    if cached.is_none() {
        let (policy, value) = (Policy::clone(policy), value.clone());
        let _ = cache.set(Cached {
            policy,
            limit: *limit,
            quota: *quota,
            value,
        });
    }
    Some(value)
}
