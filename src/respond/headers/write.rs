//! Writes the rate limit fields of a response.

use http::{HeaderMap, HeaderValue};
use smallvec::SmallVec;

use super::{
    draft::{self, AvailableQuota},
    entry::PolicyEntry,
    format::Headers,
    legacy::{self, LegacyNumbers},
    names::{RATELIMIT, RATELIMIT_POLICY},
    policy_header::{CachedPolicyHeader, PolicyHeader},
    stacked,
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
    },
    Lists(Box<Lists>),
    Triple {
        prefixed: bool,
        numbers: LegacyNumbers,
    },
    Nothing,
}

/// `RateLimit` and `RateLimit-Policy` of several policies, or of draft-07.
#[derive(Debug)]
struct Lists {
    ratelimit: HeaderValue,
    policies: HeaderValue,
    /// The remaining units in `ratelimit` if its format has room for one policy only.
    remaining: Option<u64>,
}

impl Fields {
    /// Computes the fields of all decisions that carry numbers.
    #[inline]
    pub(in crate::respond) fn new(
        outcome: &Outcome,
        headers: Headers,
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
                return Self(FieldValues::SinglePolicy { header, available });
            }
        }
        Self(FieldValues::new(outcome, headers).unwrap_or(FieldValues::Nothing))
    }

    /// Adds the fields to those of an inner layer.
    ///
    /// Replaces them if this layer leaves less and the format has room for one policy only, or both policies have the same
    /// name.
    #[inline]
    pub(in crate::respond) fn write(self, headers: &mut HeaderMap) {
        match self.0 {
            FieldValues::SinglePolicy { header, available } => {
                if let Some(ratelimit) = header.ratelimit(available) {
                    stacked::add(headers, ratelimit, header.ratelimit_policy());
                }
            }
            FieldValues::Lists(lists) => lists.write(headers),
            FieldValues::Triple { prefixed, numbers } => numbers.write(headers, prefixed),
            FieldValues::Nothing => {}
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
        let nearest = entries.first()?.decision;
        Some(match headers {
            Headers::Draft => Self::Lists(Box::new(Lists {
                ratelimit: draft::ratelimit_list(&entries)?,
                policies: draft::policy_list(&entries)?,
                remaining: None,
            })),
            Headers::Draft07 => {
                let numbers = LegacyNumbers::new(nearest, headers);
                Self::Lists(Box::new(Lists {
                    ratelimit: numbers.dictionary()?,
                    policies: legacy::policy_list(&entries)?,
                    remaining: Some(numbers.remaining),
                }))
            }
            Headers::Draft06 | Headers::Legacy | Headers::LegacyDelta => Self::Triple {
                prefixed: headers != Headers::Draft06,
                numbers: LegacyNumbers::new(nearest, headers),
            },
            Headers::None => Self::Nothing,
        })
    }
}

impl Lists {
    fn write(self, headers: &mut HeaderMap) {
        match self.remaining {
            None => stacked::add(headers, self.ratelimit, self.policies),
            Some(remaining) => {
                let inner = headers.get(RATELIMIT).and_then(legacy::remaining_in);
                if inner.is_none_or(|inner| remaining < inner) {
                    let _ = headers.try_insert(RATELIMIT, self.ratelimit);
                }
                let _ = headers.try_append(RATELIMIT_POLICY, self.policies);
            }
        }
    }
}
