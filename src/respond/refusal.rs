//! Refusals, their causes, and refusals as errors of services without HTTP.

use std::{error::Error, fmt, time::Duration};

use super::{RefuseLate, Respond};
use crate::{
    decision::{Decision, Decisions, Verdict},
    key::{MissingKey, OperatorHelp},
    outcome::Outcome,
    policy::Policy,
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
    /// A limit was reached. Nothing was spent, unless the limit charges [after the
    /// response](crate::Limit::charge_after): then the other limits stay charged.
    Limit,
    /// The store could not decide, and is configured to refuse in that case.
    Undecided,
    /// The store [does not support](crate::store::StoreError::unsupported) the call, which is the
    /// server's fault. It is refused even under `fail_open`.
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
    /// The cause is [`Unsupported`](Cause::Unsupported) if one decision is, else
    /// [`Limit`](Cause::Limit) if one of them refuses, else [`Undecided`](Cause::Undecided).
    #[inline]
    pub fn new(outcome: Outcome) -> Self {
        let decisions = outcome.iter().map(|(_, decision)| decision);
        let cause = Cause::of(decisions);
        Self { cause, outcome }
    }

    /// Creates a refusal from the decisions of `outcome`.
    // The cause is not read from the outcome: a value that is read before it is moved is moved once
    // more.
    #[inline]
    pub(crate) fn decided(outcome: Outcome, decisions: &Decisions) -> Self {
        Self {
            cause: Cause::of(decisions.as_slice().iter()),
            outcome,
        }
    }

    /// Creates a refusal for a missing key.
    pub fn missing(key: MissingKey) -> Self {
        Self {
            cause: Cause::MissingKey(key),
            outcome: Outcome::new(),
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

    /// Returns the policy whose store does not support the call.
    pub(crate) fn unsupported_policy(&self) -> Option<&Policy> {
        let mut decisions = self.outcome.iter();
        let unsupported = decisions.find(|(_, decision)| decision.is_unsupported());
        unsupported.map(|(policy, _)| policy)
    }

    /// Returns the decisions of all limits.
    #[inline]
    pub fn outcome(&self) -> &Outcome {
        &self.outcome
    }

    /// Returns the outcome for its caller to take: `into_outcome` would first move the whole
    /// refusal.
    #[inline]
    pub(super) fn outcome_mut(&mut self) -> &mut Outcome {
        &mut self.outcome
    }

    /// Returns the decisions of all limits, by value.
    #[inline]
    pub fn into_outcome(self) -> Outcome {
        self.outcome
    }

    /// Returns `true` if the request costs more than one of the limits can ever admit, so that it
    /// must not be sent again as it is.
    ///
    /// See [`Decision::is_oversized`]. [`Http`](super::Http) answers it with [a status of its
    /// own](super::Http::oversized_status).
    ///
    /// ```
    /// use tollgate::{Cost, Outcome, Policy, TokenBucket, respond::Refusal};
    /// use tollgate::store::Local;
    /// use tollgate::store::driver::Ask;
    ///
    /// let (store, api, rule) = (Local::new(), Policy::new("api"), TokenBucket::per_minute(100));
    /// let mut outcome = Outcome::new();
    /// let ask = Ask::new(&api, &rule, "alice".into(), Cost::new(101).unwrap());
    /// outcome.push(api.clone(), store.decide(&ask));
    /// assert!(Refusal::new(outcome).is_oversized());
    /// ```
    #[inline]
    pub fn is_oversized(&self) -> bool {
        matches!(self.cause, Cause::Limit) && self.outcome.is_oversized()
    }

    /// Returns the shortest wait after which the same request may pass: the longest wait of all
    /// refusing limits.
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
                    None if self.is_oversized() => f.write_str("; this request can never pass"),
                    None => Ok(()),
                }
            }
            Cause::Undecided => f.write_str("the rate limit could not be checked"),
            Cause::Unsupported => f.write_str("internal error"),
            Cause::MissingKey(missing) => missing.fmt(f),
        }
    }
}

/// The error of a refused request, made by [`AsError`].
///
/// `Display` and `Debug` are fit for clients, as those of a [`Refusal`] are. Details for the
/// operator are in [`Refusal::help`].
///
/// # Examples
///
/// ```
/// use tollgate::respond::Refused;
///
/// /// The status that a job queue reports for an error of its worker.
/// fn status(error: &(dyn std::error::Error + 'static)) -> String {
///     match error.downcast_ref::<Refused>() {
///         Some(refused) if refused.is_oversized() => "the job is too large".to_owned(),
///         Some(refused) if refused.is_limit() => match refused.retry_after() {
///             Some(wait) => format!("try again in {} s", wait.as_secs() + 1),
///             None => "try again later".to_owned(),
///         },
///         _ => "failed".to_owned(),
///     }
/// }
///
/// assert_eq!(status(&std::fmt::Error), "failed");
/// ```
pub struct Refused {
    // Boxed, so that a `Result` without an error stays small.
    refusal: Box<Refusal>,
}

impl Refused {
    /// Returns the refusal, with its cause and outcome.
    pub fn refusal(&self) -> &Refusal {
        &self.refusal
    }

    /// Returns the shortest wait after which the same request may pass.
    ///
    /// Returns `None` when it never may, or the wait is unknown.
    pub fn retry_after(&self) -> Option<Duration> {
        self.refusal.retry_after()
    }

    /// Returns `true` if a limit was reached.
    pub fn is_limit(&self) -> bool {
        matches!(self.refusal.cause(), Cause::Limit)
    }

    /// Returns `true` if the request costs more than a limit can ever admit, so that it must not be
    /// sent again as it is.
    pub fn is_oversized(&self) -> bool {
        self.refusal.is_oversized()
    }

    /// Returns `true` if the store could not decide, and is configured to refuse in that case.
    pub fn is_undecided(&self) -> bool {
        matches!(self.refusal.cause(), Cause::Undecided)
    }

    /// Returns `true` if the store [does not support](crate::store::StoreError::unsupported) the
    /// call, which is the server's fault.
    pub fn is_unsupported(&self) -> bool {
        matches!(self.refusal.cause(), Cause::Unsupported)
    }

    /// Returns `true` if the request has no key.
    pub fn is_missing_key(&self) -> bool {
        matches!(self.refusal.cause(), Cause::MissingKey(_))
    }
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        Self {
            refusal: Box::new(refusal),
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.refusal.fmt(f)
    }
}

impl fmt::Debug for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Refused({self})")
    }
}

impl Error for Refused {}

/// Returns refusals as the service's error, for services whose error is `From<Refused>`.
///
/// `tower::BoxError` is, and so is the error of most other tower middleware. Admitted responses are
/// not annotated.
///
/// # Examples
///
/// ```
/// use tollgate::{RateLimitLayer, TokenBucket, respond::{AsError, Refused}};
/// use tower::{BoxError, Service, ServiceBuilder, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), BoxError> {
/// let mut jobs = ServiceBuilder::new()
///     .layer(RateLimitLayer::new(TokenBucket::per_minute(1)).respond(AsError))
///     .service(service_fn(async |job: u32| Ok::<_, BoxError>(job + 1)));
///
/// assert_eq!(jobs.ready().await?.call(1).await?, 2);
/// let error = jobs.ready().await?.call(1).await.unwrap_err();
/// let refused = error.downcast_ref::<Refused>().ok_or("another error")?;
/// assert!(refused.is_limit());
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AsError;

#[diagnostic::do_not_recommend]
impl<Req, Res, E: From<Refused>> Respond<Req, Res, E> for AsError {
    type Annotation = ();

    #[inline]
    fn wants_outcome(&self) -> bool {
        false
    }

    fn admit(&self, _: &mut Req, _: Outcome) {}

    fn annotate((): (), _: &mut Res) {}

    fn refuse(&self, _: Req, refusal: Refusal) -> Result<Res, E> {
        Err(Refused::from(refusal).into())
    }
}

#[diagnostic::do_not_recommend]
impl<Res, E: From<Refused>> RefuseLate<Res, E> for AsError {
    fn refuse_late(&self, _: Res, refusal: Refusal) -> Result<Res, E> {
        Err(Refused::from(refusal).into())
    }
}

/// Displays a wait, as in `30 s`, `2 min 5 s` or `3 d 4 h`.
///
/// The wait is rounded up, so a client that waits for it never retries too early. It is in
/// milliseconds below a second, in seconds below 100 s, and in two units above.
struct WaitText(Duration);

impl fmt::Display for WaitText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // In 128 bits: the longest wait, rounded up, exceeds 64.
        let millis = self.0.as_nanos().div_ceil(1_000_000);
        let seconds = millis.div_ceil(1000);
        let minutes = seconds.div_ceil(60);
        let (count, small, each, large) = match (millis, seconds, minutes) {
            (1..1000, ..) => return write!(f, "{millis} ms"),
            (_, ..100, _) => return write!(f, "{seconds} s"),
            (_, ..3600, _) => (seconds, "s", 60, "min"),
            (.., ..1440) => (minutes, "min", 60, "h"),
            _ => (minutes.div_ceil(60), "h", 24, "d"),
        };
        write!(f, "{} {large}", count / each)?;
        match count % each {
            0 => Ok(()),
            rest => write!(f, " {rest} {small}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn waits_are_round() {
        for (nanos, text) in [
            (0, "0 s"),
            (1, "1 ms"),
            (1_500_000, "2 ms"),
            (999_000_000, "999 ms"),
            (999_000_001, "1 s"),
            (1_000_000_001, "2 s"),
            (29_999_028_483, "30 s"),
            (99_000_000_000, "99 s"),
            (99_000_000_001, "1 min 40 s"),
            (120_000_000_000, "2 min"),
            (3_599_000_000_001, "1 h"),
            (5_399_000_000_001, "1 h 30 min"),
            (86_340_000_000_001, "1 d"),
            (90_000_000_000_001, "1 d 2 h"),
        ] {
            assert_eq!(
                WaitText(Duration::from_nanos(nanos)).to_string(),
                text,
                "{nanos}"
            );
        }
        assert_eq!(WaitText(Duration::MAX).to_string(), "213503982334601 d 8 h");
    }

    proptest! {
        #[test]
        fn a_wait_is_never_rounded_down(nanos in prop_oneof![0..5_000_000_000_u64, 0..400_000_000_000_000_u64, any::<u64>()]) {
            let text = WaitText(Duration::from_nanos(nanos)).to_string();
            let words: Vec<_> = text.split(' ').collect();
            let parsed = words.chunks(2).map(|pair| {
                let unit: u128 = match pair[1] {
                    "ms" => 1_000_000,
                    "s" => 1_000_000_000,
                    "min" => 60_000_000_000,
                    "h" => 3_600_000_000_000,
                    _ => 86_400_000_000_000,
                };
                pair[0].parse::<u128>().unwrap() * unit
            });
            let (wait, nanos) = (parsed.sum::<u128>(), u128::from(nanos));
            prop_assert!(wait >= nanos, "{}", text);
            // By less than a millisecond, or than a part in ten; within a minute of an hour and an
            // hour of a day.
            prop_assert!(wait - nanos < 1_000_000 || wait - nanos <= nanos.max(10_000_000_000) / 10, "{}", text);
        }
    }
}
