//! The rate limit fields of a response, in each of their shapes.

use http::{HeaderMap, HeaderName, HeaderValue, header::RETRY_AFTER};
use smallvec::SmallVec;

use super::{
    draft::{self, One},
    format::Headers,
    legacy::{self, Numbers},
    policy_header::CachedHeader,
    stacked,
};
use crate::{decision::Decision, outcome::Outcome, policy::Policy, quota::Quota};

const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// The header names to list in `Access-Control-Expose-Headers` (WHATWG Fetch, CORS protocol).
///
/// Browsers hide other fields from scripts of other origins. The list has every field that this
/// crate writes under any setting; naming a field that is never sent does no harm.
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
    legacy::LIMIT,
    legacy::REMAINING,
    legacy::RESET,
    legacy::X_LIMIT,
    legacy::X_REMAINING,
    legacy::X_RESET,
    super::super::grpc::STATUS,
    super::super::grpc::MESSAGE,
    super::super::grpc::DETAILS,
    super::super::grpc::PUSHBACK,
];

/// The rate limit fields of one response, made with the decision.
///
/// [`Http`](crate::respond::Http) and [`Grpc`](crate::respond::Grpc) add them to the response of an admitted request.
#[doc(hidden)]
#[derive(Debug)]
pub struct Fields(Shape);

/// Small, because the response future holds it: rare shapes are boxed.
#[derive(Debug)]
enum Shape {
    Draft(One),
    Lists(Box<Lists>),
    Triple { prefixed: bool, numbers: Numbers },
    Nothing,
}

/// The fields of several policies, or of draft-07.
#[derive(Debug)]
struct Lists {
    /// The remaining units in `standing`, if its shape has room for one policy only.
    remaining: Option<u64>,
    standing: HeaderValue,
    policies: HeaderValue,
}

/// A decision that carries a limit and a quota.
pub(super) struct Entry<'a> {
    pub(super) policy: &'a Policy,
    pub(super) decision: &'a Decision,
    pub(super) limit: u64,
    pub(super) quota: Quota,
}

impl<'a> Entry<'a> {
    #[inline]
    fn of((policy, decision): (&'a Policy, &'a Decision)) -> Option<Self> {
        if decision.is_undecided() {
            return None;
        }
        Some(Self {
            policy,
            decision,
            limit: decision.limit()?,
            quota: decision.quota()?,
        })
    }
}

impl Fields {
    /// Returns the fields of all decisions that carry numbers; none for an undecided one.
    #[inline]
    pub(in crate::respond) fn of(
        outcome: &Outcome,
        headers: Headers,
        cached: &CachedHeader,
    ) -> Self {
        // Most requests have one limit, whose policy is the same for all keys.
        if let (Headers::Draft, Some(only)) = (headers, outcome.only()) {
            let entry = Entry::of(only).filter(|entry| entry.policy.partition_key().is_none());
            if let Some(entry) = entry
                && let Some(header) = cached.get(&entry)
            {
                return Self(Shape::Draft(One::new(header, &entry)));
            }
        }
        Self(Shape::of(outcome, headers).unwrap_or(Shape::Nothing))
    }

    /// Adds the fields to those of an inner layer. Replaces them if the shape has room for one policy only, or if
    /// both have the same name, and this layer leaves less.
    #[inline]
    pub(in crate::respond) fn write(self, headers: &mut HeaderMap) {
        match self.0 {
            Shape::Draft(one) => {
                if let Some(standing) = one.standing() {
                    let policy = (RATELIMIT_POLICY, one.policy());
                    stacked::add(headers, (RATELIMIT, standing), policy);
                }
            }
            Shape::Lists(lists) => lists.write(headers),
            Shape::Triple { prefixed, numbers } => numbers.write(headers, prefixed),
            Shape::Nothing => {}
        }
    }
}

impl Shape {
    #[cold]
    fn of(outcome: &Outcome, headers: Headers) -> Option<Self> {
        if headers == Headers::None {
            return None;
        }
        let mut entries: SmallVec<[Entry<'_>; 2]> = outcome.iter().filter_map(Entry::of).collect();
        entries.sort_by(|a, b| a.decision.nearness(b.decision));
        let nearest = entries.first()?.decision;
        Some(match headers {
            Headers::Draft => Self::Lists(Box::new(Lists {
                remaining: None,
                standing: draft::standings(&entries)?,
                policies: draft::policies(&entries)?,
            })),
            Headers::Draft07 => {
                let numbers = Numbers::of(nearest, headers);
                Self::Lists(Box::new(Lists {
                    remaining: Some(numbers.remaining),
                    standing: numbers.dictionary()?,
                    policies: legacy::policies(&entries)?,
                }))
            }
            Headers::Draft06 | Headers::Legacy | Headers::LegacyDelta => Self::Triple {
                prefixed: headers != Headers::Draft06,
                numbers: Numbers::of(nearest, headers),
            },
            Headers::None => Self::Nothing,
        })
    }
}

impl Lists {
    fn write(self, headers: &mut HeaderMap) {
        match self.remaining {
            None => {
                let policies = (RATELIMIT_POLICY, self.policies);
                stacked::add(headers, (RATELIMIT, self.standing), policies);
            }
            Some(remaining) => {
                let others = headers.get(RATELIMIT).and_then(legacy::remaining_in);
                if others.is_none_or(|others| remaining < others) {
                    let _ = headers.try_insert(RATELIMIT, self.standing);
                }
                let _ = headers.try_append(RATELIMIT_POLICY, self.policies);
            }
        }
    }
}
