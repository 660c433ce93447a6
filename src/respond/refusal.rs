//! Refusals and their causes.

use std::{fmt, time::Duration};

use super::wait_text::WaitText;
use crate::{
    decision::{Decision, Decisions, Verdict},
    key::{MissingKey, OperatorHelp},
    outcome::Outcome,
};

/// The reason why a request was refused, and the decisions of its limits.
///
/// `Display` and `Debug` are fit for clients. Details for the operator are in [`help`](Self::help).
///
/// # Examples
///
/// ```
/// use http::{HeaderValue, header::CONTENT_TYPE};
/// use tollgate::respond::{Cause, Http};
///
/// let respond = Http::body(|refusal, parts| {
///     if refusal.is_bodiless() {
///         return String::new();
///     }
///     parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
///     match (refusal.cause(), refusal.retry_after()) {
///         (Cause::Limit, Some(wait)) => format!("slow down, and come back in {wait:.0?}"),
///         _ => refusal.to_string(),
///     }
/// });
/// # let _ = respond;
/// ```
#[derive(Clone, Debug)]
pub struct Refusal {
    cause: Cause,
    outcome: Outcome,
    form: BodyForm,
}

/// The parts of a response that a refusal may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum BodyForm {
    #[default]
    Full,
    /// The fields of the full answer without its body (RFC 9110 §9.3.2).
    Head,
    /// Header fields alone.
    Grpc,
}

/// The cause of a [`Refusal`].
///
/// # Examples
///
/// ```
/// use tollgate::{key::MissingKey, respond::{Cause, Refusal}};
///
/// let refusal = Refusal::missing(MissingKey::new("no header `x-api-key`"));
/// assert!(matches!(refusal.cause(), Cause::MissingKey(_)));
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Cause {
    /// A limit was reached. Nothing was spent.
    Limit,
    /// The store could not decide, and is configured to refuse in that case.
    Undecided,
    /// The store [does not support](crate::store::Error::unsupported) the call, which is the server's fault. It is refused even
    /// under `fail_open`.
    Unsupported,
    /// The request has no key.
    MissingKey(MissingKey),
}

impl Cause {
    fn of<'a>(mut decisions: impl Iterator<Item = &'a Decision> + Clone) -> Self {
        if decisions.clone().any(Decision::is_unsupported) {
            Self::Unsupported
        } else if decisions.any(|decision| decision.verdict() == Verdict::Refuse) {
            Self::Limit
        } else {
            Self::Undecided
        }
    }
}

/// The help for a call that the store does not support. The store's own message is in its error.
static UNSUPPORTED: OperatorHelp = OperatorHelp::of_static(
    "the store of a rate limit does not support this call: expected a rule, and a state, that fit the store; read its error in the log \
     (feature `tracing`), and take another rule or store",
);

impl Refusal {
    /// Creates a refusal by the limits of `outcome`.
    ///
    /// The cause is [`Unsupported`](Cause::Unsupported) if one decision is, else [`Limit`](Cause::Limit) if one of them
    /// refuses, else [`Undecided`](Cause::Undecided).
    #[inline]
    pub fn new(outcome: Outcome) -> Self {
        let decisions = outcome.iter().map(|(_, decision)| decision);
        let cause = Cause::of(decisions);
        Self {
            cause,
            outcome,
            form: BodyForm::Full,
        }
    }

    /// Creates a refusal by these decisions, which are those of the outcome.
    // The cause is not read from the outcome: a value that is read before it is moved is moved once more.
    #[inline]
    pub(crate) fn decided(outcome: Outcome, decisions: &Decisions) -> Self {
        Self {
            cause: Cause::of(decisions.as_slice().iter()),
            outcome,
            form: BodyForm::Full,
        }
    }

    /// Creates a refusal for a missing key.
    pub fn missing(key: MissingKey) -> Self {
        Self {
            cause: Cause::MissingKey(key),
            outcome: Outcome::new(),
            form: BodyForm::Full,
        }
    }

    /// Returns the cause.
    #[inline]
    pub fn cause(&self) -> &Cause {
        &self.cause
    }

    /// Returns help for the operator; `None` if the server is not at fault.
    pub fn help(&self) -> Option<&OperatorHelp> {
        match &self.cause {
            Cause::MissingKey(missing) => missing.help(),
            Cause::Unsupported => Some(&UNSUPPORTED),
            Cause::Limit | Cause::Undecided => None,
        }
    }

    /// Returns the decisions of all limits.
    #[inline]
    pub fn outcome(&self) -> &Outcome {
        &self.outcome
    }

    /// Returns the outcome, to be taken out: `into_outcome` would first move the whole refusal.
    #[inline]
    pub(super) fn outcome_mut(&mut self) -> &mut Outcome {
        &mut self.outcome
    }

    /// Returns the decisions of all limits, by value.
    #[inline]
    pub fn into_outcome(self) -> Outcome {
        self.outcome
    }

    /// Returns `true` if the response must have an empty body: to a HEAD request, and over gRPC.
    ///
    /// For the closure of [`Http::body`](super::Http::body). Elsewhere it is `false`.
    pub fn is_bodiless(&self) -> bool {
        self.form != BodyForm::Full
    }

    #[inline]
    pub(super) fn form(&self) -> BodyForm {
        self.form
    }

    #[inline]
    pub(super) fn set_form(&mut self, form: BodyForm) {
        self.form = form;
    }

    /// Returns `true` if the same request can never pass, however long its client waits.
    pub(super) fn is_forever(&self) -> bool {
        matches!(self.cause, Cause::Limit)
            && self
                .outcome
                .refusals()
                .any(|(_, decision)| decision.retry_after().is_none())
    }

    /// Returns `true` if the request costs more than one of the limits can ever admit, so that it must not be sent again as it is.
    ///
    /// See [`Decision::is_oversized`]. [`Http`](super::Http) answers it with [a status of its own](super::Http::oversized_status).
    ///
    /// ```
    /// use tollgate::{Cost, Outcome, Policy, TokenBucket, respond::Refusal, store::{Ask, Local}};
    ///
    /// let (store, api, rule) = (Local::new(), Policy::new("api"), TokenBucket::per_minute(100));
    /// let mut outcome = Outcome::new();
    /// outcome.push(api.clone(), store.decide(&Ask::new(&api, &rule, "alice".into(), Cost::new(101).unwrap())));
    /// assert!(Refusal::new(outcome).is_oversized());
    /// ```
    #[inline]
    pub fn is_oversized(&self) -> bool {
        matches!(self.cause, Cause::Limit) && self.outcome.is_oversized()
    }

    /// Returns the least wait after which the same request may pass: the longest wait of all limits that refuse.
    ///
    /// Returns `None` when one of them never lets it pass, or no wait is known.
    #[inline]
    pub fn retry_after(&self) -> Option<Duration> {
        if matches!(self.cause, Cause::Unsupported) {
            return None;
        }
        // An undecided answer without a wait does not make the waits of others unknown.
        let mut longest = None;
        for (_, decision) in self.outcome.iter() {
            match (decision.verdict(), decision.retry_after()) {
                (Verdict::Refuse, None) => return None,
                (Verdict::Refuse | Verdict::Undecided { admitted: false }, wait) => {
                    longest = longest.max(wait);
                }
                _ => {}
            }
        }
        longest
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            Cause::Limit => {
                f.write_str("rate limit exceeded: ")?;
                for (index, (policy, _)) in self.outcome.refusals().enumerate() {
                    let comma = if index == 0 { "" } else { ", " };
                    write!(f, "{comma}{policy}")?;
                }
                match self.retry_after() {
                    Some(wait) => write!(f, "; retry after {}", WaitText(wait)),
                    None => f.write_str("; this request can never pass"),
                }
            }
            Cause::Undecided => f.write_str("the rate limit could not be checked"),
            Cause::Unsupported => f.write_str("internal error"),
            Cause::MissingKey(missing) => missing.fmt(f),
        }
    }
}
