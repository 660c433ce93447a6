//! Writes the rate limit fields of a response.

use http::{HeaderMap, HeaderValue};
use smallvec::SmallVec;

use super::{
    draft::{self, AvailableQuota},
    entry::PolicyEntry,
    format::Headers,
    legacy::{self, LegacyNumbers, Triple},
    merge,
    policy_header::{CachedPolicyHeader, PolicyHeader},
    upstream::UpstreamFields,
};
use crate::outcome::Outcome;

/// The rate limit fields of one response, computed with the decision.
///
/// [`Http`](crate::respond::Http) and [`Grpc`](crate::respond::Grpc) add them to the response of an admitted request. A
/// responder that wraps one of the two passes them through:
///
/// ```
/// use http::{Request, Response, header::SERVER, HeaderValue};
/// use tollgate::{Outcome, respond::{Fields, Http, Refusal, Respond}};
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
///     fn annotate(fields: Fields, res: &mut Response<String>) {
///         <Http as Respond<Request<String>, _, E>>::annotate(fields, res);
///         res.headers_mut().insert(SERVER, HeaderValue::from_static("example"));
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
pub struct Fields(FieldValues);

/// The values of the fields. Small, because the response future holds it: values of rare formats are boxed.
#[derive(Debug)]
enum FieldValues {
    /// The current draft with one policy, whose header is cached.
    SinglePolicy {
        header: &'static PolicyHeader,
        available: AvailableQuota,
        upstream: UpstreamFields,
    },
    Boxed(Box<Boxed>, UpstreamFields),
    Triple {
        format: Triple,
        numbers: LegacyNumbers,
        upstream: UpstreamFields,
    },
    Nothing,
}

/// `RateLimit` and `RateLimit-Policy` of formats that are long to move.
#[derive(Debug)]
enum Boxed {
    /// The current draft with several policies.
    Lists {
        ratelimit: HeaderValue,
        policies: HeaderValue,
    },
    Draft07 {
        numbers: LegacyNumbers,
        policies: HeaderValue,
    },
}

impl Fields {
    /// Computes the fields of all decisions that carry numbers.
    #[inline]
    pub(in crate::respond) fn new(
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
                let available = AvailableQuota::new(entry.decision, &entry.quota);
                return Self(FieldValues::SinglePolicy {
                    header,
                    available,
                    upstream,
                });
            }
        }
        Self(FieldValues::new(outcome, headers, upstream).unwrap_or(FieldValues::Nothing))
    }

    /// Adds the fields to those of an upstream or an inner layer, as [`UpstreamFields`] says.
    #[inline]
    pub(in crate::respond) fn write(self, headers: &mut HeaderMap) {
        match self.0 {
            FieldValues::SinglePolicy {
                header,
                available,
                upstream,
            } => {
                if let Some(ratelimit) = header.ratelimit(available) {
                    merge::add_lists(headers, upstream, ratelimit, header.ratelimit_policy());
                }
            }
            FieldValues::Boxed(boxed, upstream) => match *boxed {
                Boxed::Lists {
                    ratelimit,
                    policies,
                } => merge::add_lists(headers, upstream, ratelimit, policies),
                Boxed::Draft07 { numbers, policies } => {
                    merge::add_single(headers, upstream, numbers, policies);
                }
            },
            FieldValues::Triple {
                format,
                numbers,
                upstream,
            } => merge::add_triple(headers, upstream, numbers, format),
            FieldValues::Nothing => {}
        }
    }
}

impl FieldValues {
    #[cold]
    fn new(outcome: &Outcome, headers: Headers, upstream: UpstreamFields) -> Option<Self> {
        if headers == Headers::None {
            return None;
        }
        let mut entries: SmallVec<[PolicyEntry<'_>; 2]> =
            outcome.iter().filter_map(PolicyEntry::new).collect();
        entries.sort_by(|a, b| a.decision.nearness(b.decision));
        let nearest = entries.first()?.decision;
        let numbers = LegacyNumbers::new(nearest, headers);
        let triple = |format| Self::Triple {
            format,
            numbers,
            upstream,
        };
        let boxed = |boxed| Self::Boxed(Box::new(boxed), upstream);
        Some(match headers {
            Headers::Draft => boxed(Boxed::Lists {
                ratelimit: draft::ratelimit_list(&entries)?,
                policies: draft::policy_list(&entries)?,
            }),
            Headers::Draft07 => boxed(Boxed::Draft07 {
                numbers,
                policies: legacy::policy_list(&entries)?,
            }),
            Headers::Draft06 => triple(Triple::Draft06),
            Headers::Legacy => triple(Triple::UnixSeconds),
            Headers::LegacyDelta => triple(Triple::Delta),
            Headers::None => Self::Nothing,
        })
    }
}
