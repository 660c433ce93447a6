//! The rate limit fields of a response: their formats, names and values.
//!
//! | file | content |
//! |---|---|
//! | `draft` | the values of `RateLimit` and `RateLimit-Policy`, and a cache of their constant parts |
//! | `legacy` | the values and fields of older formats |
//! | `value` | the writing of values: a buffer, whole numbers, Base64 |
//! | `structured` | a parser of structured fields |
//! | `existing` | the fields that a response already has, in any format |
//! | `upstream` | those fields merged with the ones of the layer |

mod draft;
mod existing;
mod legacy;
mod structured;
mod upstream;
pub(super) mod value;

pub(super) use self::draft::CachedPolicyHeader;
pub use self::upstream::UpstreamFields;

use std::{fmt, str::FromStr};

use http::{HeaderMap, HeaderName, HeaderValue, header::RETRY_AFTER};
use smallvec::SmallVec;

use self::{
    draft::{AvailableQuota, PolicyHeader},
    legacy::LegacyNumbers,
};
use crate::{decision::Decision, error::Error, outcome::Outcome, policy::Policy, quota::Quota};

/// The format of the rate limit fields in responses.
///
/// | | text | fields |
/// |---|---|---|
/// | `Draft` | `draft` | `RateLimit: "api";r=50;t=30` and `RateLimit-Policy: "api";q=100;w=60` |
/// | `Draft07` | `draft-07` | `RateLimit: limit=100, remaining=50, reset=5` and `RateLimit-Policy: 100;w=60` |
/// | `Draft06` | `draft-06` | `RateLimit-Limit`, `RateLimit-Remaining`, `RateLimit-Reset` |
/// | `Legacy` | `legacy` | `X-RateLimit-Limit`, `X-RateLimit-Remaining`, `X-RateLimit-Reset` as Unix seconds |
/// | `LegacyDelta` | `legacy-delta` | as `Legacy`, with the reset as seconds from now |
/// | `None` | `none` | none; `Retry-After` stays |
///
/// `Draft` reports every policy, the nearest to exhaustion first. Stacked layers add theirs; if two
/// of them have the same name by mistake, the one that leaves less is reported.
/// [`UpstreamFields`](crate::respond::UpstreamFields) has the rules for fields of an upstream. The
/// other formats report the policy that refuses for longest, or else the one that is nearest to
/// exhaustion (draft-07 reports all of them in `RateLimit-Policy`), and their reset counts down to
/// a full quota; that of a [warm-up](crate::algorithm::WarmUp) to the next second, because an idle
/// key cools.
///
/// # Examples
///
/// ```
/// use tollgate::respond::{Headers, Http};
///
/// let respond = Http::new().headers(Headers::Legacy);
/// # let _ = respond;
///
/// // As a setting in a configuration file.
/// assert_eq!("draft-07".parse(), Ok(Headers::Draft07));
/// assert_eq!(Headers::default().to_string(), "draft");
/// assert!("x-ratelimit".parse::<Headers>().is_err());
/// ```
#[doc(alias = "x-ratelimit")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Headers {
    /// draft-ietf-httpapi-ratelimit-headers-08 to -11: the default.
    #[default]
    Draft,
    /// draft-ietf-httpapi-ratelimit-headers-07.
    Draft07,
    /// draft-ietf-httpapi-ratelimit-headers-06 and earlier ones.
    Draft06,
    /// `X-RateLimit-*` with the reset in Unix seconds, as GitHub sends them.
    Legacy,
    /// `X-RateLimit-*` with the reset in seconds from now.
    LegacyDelta,
    /// No rate limit fields.
    None,
}

const NAMES: [(&str, Headers); 6] = [
    ("draft", Headers::Draft),
    ("draft-07", Headers::Draft07),
    ("draft-06", Headers::Draft06),
    ("legacy", Headers::Legacy),
    ("legacy-delta", Headers::LegacyDelta),
    ("none", Headers::None),
];

impl FromStr for Headers {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let known = NAMES.iter().find(|(name, _)| *name == text);
        known.map(|(_, headers)| *headers).ok_or_else(|| {
            Error::new(format!(
                "unknown format of headers `{text}`: expected draft, draft-07, draft-06, legacy, \
                 legacy-delta or none; write `draft` if no client reads them yet"
            ))
            .at_column(1)
        })
    }
}

impl fmt::Display for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = NAMES.iter().find(|(_, headers)| headers == self);
        f.write_str(named.map_or("draft", |(name, _)| name))
    }
}

/// The rate limit fields of one response, computed with the decision.
///
/// [`Http`](crate::respond::Http) and [`Grpc`](crate::respond::Grpc) add them to the response of an
/// admitted request. A responder that wraps one of the two passes them through:
///
/// ```
/// use http::{Request, Response, header::SERVER, HeaderValue};
/// use tollgate::{Outcome, Permit, respond::{Fields, Http, Refusal, Respond}};
///
/// /// `Http`, with a `Server` field on every answer.
/// struct Named(Http);
///
/// impl<E> Respond<Request<String>, Response<String>, E> for Named {
///     type Annotation = Fields;
///
///     fn wants_outcome(&self) -> bool {
///         true
///     }
///
///     fn admit(&self, req: &mut Request<String>, outcome: Outcome) -> Fields {
///         Respond::<_, Response<String>, E>::admit(&self.0, req, outcome)
///     }
///
///     fn outer_outcome<'a>(&self, req: &'a Request<String>) -> Option<&'a Outcome> {
///         Respond::<_, Response<String>, E>::outer_outcome(&self.0, req)
///     }
///
///     fn annotate(fields: Fields, res: &mut Response<String>) {
///         <Http as Respond<Request<String>, _, E>>::annotate(fields, res);
///         res.headers_mut().insert(SERVER, HeaderValue::from_static("example"));
///     }
///
///     fn revise(&self, fields: Fields, outcome: &Outcome) -> Fields {
///         Respond::<Request<String>, Response<String>, E>::revise(&self.0, fields, outcome)
///     }
///
///     fn carry_permit(&self, req: &mut Request<String>, permit: &Permit) {
///         Respond::<_, Response<String>, E>::carry_permit(&self.0, req, permit);
///     }
///
///     fn attach_permit(permit: Permit, res: &mut Response<String>) {
///         <Http as Respond<Request<String>, _, E>>::attach_permit(permit, res);
///     }
///
///     fn refuse(&self, req: Request<String>, refusal: Refusal) -> Result<Response<String>, E> {
///         let mut res = self.0.refuse(req, refusal)?;
///         res.headers_mut().insert(SERVER, HeaderValue::from_static("example"));
///         Ok(res)
///     }
/// }
/// # use tollgate::{Decision, Policy, Timestamp, Verdict};
/// # let mut outcome = Outcome::new();
/// # outcome.push(Policy::new("api"), Decision::new(Verdict::Refuse, Timestamp::default(), 1));
/// # let answer: Result<_, ()> = Named(Http::new()).refuse(Request::default(), Refusal::new(outcome));
/// # assert_eq!(answer.unwrap().headers()[SERVER], "example");
/// ```
#[derive(Debug)]
pub struct Fields(Option<(FieldValues, UpstreamFields)>);

/// The values of the fields. Those of rare formats are boxed, because the response future holds
/// them.
#[derive(Debug)]
enum FieldValues {
    /// The current draft with one policy, whose header is cached.
    SinglePolicy(&'static PolicyHeader, AvailableQuota),
    /// `RateLimit` and `RateLimit-Policy` of the current draft with several policies.
    Lists(Box<[HeaderValue; 2]>),
    Draft07(Box<(LegacyNumbers, HeaderValue)>),
    /// A format with three fields.
    Triple(Headers, LegacyNumbers),
}

impl Fields {
    /// Computes the fields of all decisions that carry numbers.
    #[inline]
    pub(super) fn new(
        outcome: &Outcome,
        headers: Headers,
        upstream: UpstreamFields,
        cached: &CachedPolicyHeader,
    ) -> Self {
        // Most requests have one limit, whose policy is the same for all keys.
        if let (Headers::Draft, Some(only)) = (headers, outcome.only()) {
            let entry =
                PolicyEntry::new(only).filter(|entry| entry.policy.partition_key().is_none());
            if let Some(entry) = entry
                && let Some(header) = cached.get(&entry)
            {
                let available = AvailableQuota::new(entry.decision, entry.quota);
                let values = FieldValues::SinglePolicy(header, available);
                return Self(Some((values, upstream)));
            }
        }
        Self(FieldValues::new(outcome, headers).map(|values| (values, upstream)))
    }

    /// Merges the fields with those of an upstream or an inner layer, as [`UpstreamFields`]
    /// specifies.
    #[inline]
    pub(super) fn write(self, headers: &mut HeaderMap) {
        let Some((values, upstream)) = self.0 else {
            return;
        };
        if upstream::prepare(headers, upstream) {
            return;
        }
        match values {
            FieldValues::SinglePolicy(header, available) => {
                if let Some(ratelimit) = header.ratelimit(available) {
                    upstream::add_lists(headers, ratelimit, header.ratelimit_policy());
                }
            }
            FieldValues::Lists(lists) => {
                let [ratelimit, policies] = *lists;
                upstream::add_lists(headers, ratelimit, policies);
            }
            FieldValues::Draft07(boxed) => upstream::add_single(headers, boxed.0, boxed.1),
            FieldValues::Triple(format, numbers) => upstream::add_triple(headers, numbers, format),
        }
    }
}

impl FieldValues {
    #[cold]
    fn new(outcome: &Outcome, headers: Headers) -> Option<Self> {
        if headers == Headers::None {
            return None;
        }
        let mut entries: SmallVec<[PolicyEntry<'_>; 2]> =
            outcome.iter().filter_map(PolicyEntry::new).collect();
        entries.sort_by(|a, b| a.decision.nearness(b.decision));
        let decisions = entries.iter().map(|entry| entry.decision);
        let reported = decisions.min_by(|a, b| a.report_order(b))?;
        let numbers = LegacyNumbers::new(reported, headers);
        Some(match headers {
            Headers::Draft => Self::Lists(Box::new([
                draft::ratelimit_list(&entries)?,
                draft::policy_list(&entries)?,
            ])),
            Headers::Draft07 => Self::Draft07((numbers, legacy::policy_list(&entries)?).into()),
            format => Self::Triple(format, numbers),
        })
    }
}

/// A policy with the limit and the quota of its decision.
struct PolicyEntry<'a> {
    policy: &'a Policy,
    decision: &'a Decision,
    limit: u64,
    /// `None` if the units are calls in flight.
    quota: Option<Quota>,
}

impl<'a> PolicyEntry<'a> {
    /// Returns `None` for an undecided answer, which carries no numbers.
    #[inline]
    fn new((policy, decision): (&'a Policy, &'a Decision)) -> Option<Self> {
        if decision.is_undecided() {
            return None;
        }
        Some(Self {
            policy,
            decision,
            limit: decision.announced_limit()?,
            quota: decision.quota(),
        })
    }
}

const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

const RATELIMIT_LIMIT: HeaderName = HeaderName::from_static("ratelimit-limit");
const RATELIMIT_REMAINING: HeaderName = HeaderName::from_static("ratelimit-remaining");
const RATELIMIT_RESET: HeaderName = HeaderName::from_static("ratelimit-reset");

const X_RATELIMIT_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_RATELIMIT_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RATELIMIT_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// The fields of draft-06: the limit, the remaining units and the reset.
const DRAFT06: [HeaderName; 3] = [RATELIMIT_LIMIT, RATELIMIT_REMAINING, RATELIMIT_RESET];
/// The limit, the remaining units and the reset of one policy, as `X-RateLimit-*`.
const X_RATELIMIT: [HeaderName; 3] = [X_RATELIMIT_LIMIT, X_RATELIMIT_REMAINING, X_RATELIMIT_RESET];

pub(super) const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
pub(super) const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
pub(super) const GRPC_STATUS_DETAILS: HeaderName =
    HeaderName::from_static("grpc-status-details-bin");
pub(super) const GRPC_RETRY_PUSHBACK: HeaderName =
    HeaderName::from_static("grpc-retry-pushback-ms");

impl Headers {
    /// The header names to list in `Access-Control-Expose-Headers` (WHATWG Fetch, CORS protocol).
    ///
    /// Browsers hide other fields from scripts of other origins. The list contains every field that
    /// this crate writes under any setting. Naming a field that is never sent does no harm. With
    /// tower-http: `CorsLayer::new().expose_headers(Headers::EXPOSED)`.
    ///
    /// ```
    /// use tollgate::respond::Headers;
    ///
    /// assert!(Headers::EXPOSED.iter().any(|name| name == "ratelimit"));
    /// ```
    #[doc(alias = "cors")]
    pub const EXPOSED: [HeaderName; 13] = [
        RETRY_AFTER,
        RATELIMIT,
        RATELIMIT_POLICY,
        RATELIMIT_LIMIT,
        RATELIMIT_REMAINING,
        RATELIMIT_RESET,
        X_RATELIMIT_LIMIT,
        X_RATELIMIT_REMAINING,
        X_RATELIMIT_RESET,
        GRPC_STATUS,
        GRPC_MESSAGE,
        GRPC_STATUS_DETAILS,
        GRPC_RETRY_PUSHBACK,
    ];
}

/// [`Headers::EXPOSED`] as the value of `Access-Control-Expose-Headers`.
pub(super) const EXPOSED_LIST: &str = "retry-after, ratelimit, ratelimit-policy, ratelimit-limit, \
     ratelimit-remaining, ratelimit-reset, x-ratelimit-limit, x-ratelimit-remaining, x-ratelimit-reset, \
     grpc-status, grpc-message, grpc-status-details-bin, grpc-retry-pushback-ms";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_that_of_the_array() {
        let headers = Headers::EXPOSED;
        let names: Vec<_> = headers.iter().map(HeaderName::as_str).collect();
        assert_eq!(EXPOSED_LIST, names.join(", "));
    }
}
