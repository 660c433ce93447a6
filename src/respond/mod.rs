//! From a decision to an answer that the callers of the inner service understand.

use std::fmt;

use crate::{key::MissingKey, outcome::Outcome};

/// Turns a refusal into what callers of the inner service expect, and marks admitted responses.
///
/// `Req`, `Res` and `Err` are those of the inner service. [`Http`] answers `http` requests, gRPC
/// among them; [`Grpc`] answers all of them as gRPC; [`AsError`] makes a refusal the service's error,
/// where there is no HTTP.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot answer `{Req}` with `{Res}` or the error `{Err}`",
    note = "`Http` (the default) needs `http::Request` and an `http::Response<B>` whose body is `From<String>`; \
            `Http::empty()` and `Grpc` need `B: Default`; `Http::body(|refusal, parts| …)` builds any body; \
            without HTTP, `.respond(AsError)` needs the service's error to be `From<Refused>`"
)]
pub trait Respond<Req, Res, Err> {
    /// What an admitted request leaves behind, to mark its response with.
    type Mark;

    /// Whether anybody wants to hear the outcome of an admitted request.
    ///
    /// Without it the layer makes none, and calls neither [`admit`](Self::admit) nor
    /// [`annotate`](Self::annotate).
    fn wants_outcome(&self) -> bool;

    /// Tells an admitted request of its outcome, before the inner service is called.
    fn admit(&self, req: &mut Req, outcome: Outcome) -> Self::Mark;

    /// Marks the response of an admitted request.
    // No `self`: the response future need not share the layer's settings.
    fn annotate(mark: Self::Mark, res: &mut Res);

    /// Answers a request that does not go on.
    ///
    /// # Errors
    ///
    /// Where the service's error is how it tells a refusal.
    fn refuse(&self, req: Req, refusal: Refusal) -> Result<Res, Err>;
}

/// Why a request does not go on.
#[derive(Clone, Debug)]
pub struct Refusal {
    cause: Cause,
    outcome: Outcome,
}

/// What kind of refusal it is.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Cause {
    /// A limit was reached. Nothing was spent.
    Limit,
    /// The store could not tell, and its user chose to refuse then.
    Undecided,
    /// The request does not hold what its key is made of.
    MissingKey(MissingKey),
}

impl Refusal {
    /// A refusal by the limits of `outcome`; [undecided](Cause::Undecided) if none of them says so itself.
    pub fn new(outcome: Outcome) -> Self {
        let cause = if outcome.refusals().next().is_some() {
            Cause::Limit
        } else {
            Cause::Undecided
        };
        Self { cause, outcome }
    }

    /// A refusal for want of a key.
    pub fn missing(key: MissingKey) -> Self {
        Self { cause: Cause::MissingKey(key), outcome: Outcome::new() }
    }

    /// Why.
    pub fn cause(&self) -> &Cause {
        &self.cause
    }

    /// What each limit said.
    pub fn outcome(&self) -> &Outcome {
        &self.outcome
    }

    /// The outcome alone.
    pub fn into_outcome(self) -> Outcome {
        self.outcome
    }

    /// The least wait after which the same request may pass: the longest of the limits that
    /// refuse. `None` when one of them never lets it pass, or nobody can tell.
    pub fn retry_after(&self) -> Option<std::time::Duration> {
        self.outcome
            .iter()
            .filter(|(_, decision)| !decision.is_admitted())
            .map(|(_, decision)| decision.retry_after())
            .reduce(|a, b| Some(a?.max(b?)))
            .flatten()
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
                    Some(wait) => write!(f, "; retry after {wait:?}"),
                    None => f.write_str("; this request can never pass"),
                }
            }
            Cause::Undecided => f.write_str("the rate limit could not be checked"),
            Cause::MissingKey(missing) => missing.fmt(f),
        }
    }
}
