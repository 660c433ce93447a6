//! Why a request does not go on.

use std::{fmt, mem, time::Duration};

use super::wait::Wait;
use crate::{
    decision::Verdict,
    key::{MissingKey, OperatorHelp},
    outcome::Outcome,
};

/// Why a request does not go on.
///
/// `Display` and `Debug` are fit for clients. What only an operator should read is [`help`](Self::help).
#[derive(Clone, Debug)]
pub struct Refusal {
    cause: Cause,
    outcome: Outcome,
    form: Form,
}

/// What the answer looks like, as far as its body is concerned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Form {
    #[default]
    Full,
    /// The fields of the full answer without its body (RFC 9110 §9.3.2).
    Head,
    /// Header fields alone.
    Grpc,
}

/// What kind of refusal it is.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Cause {
    /// A limit was reached. Nothing was spent.
    Limit,
    /// The store could not tell, and its user chose to refuse then.
    Undecided,
    /// The store [does not support](crate::store::Error::unsupported) the call: the server's fault, whatever was chosen for a store
    /// that could not tell.
    Unsupported,
    /// The request does not hold what its key is made of.
    MissingKey(MissingKey),
}

/// What an operator reads of a call that the store does not support. The store's own words are in its error.
static UNSUPPORTED: OperatorHelp = OperatorHelp::of_static(
    "the store of a rate limit does not support this call: expected a rule, and a state, that fit the store; read its error in the log \
     (feature `tracing`), and take another rule or store",
);

impl Refusal {
    /// A refusal by the limits of `outcome`: [unsupported](Cause::Unsupported) if one of them is, and
    /// [undecided](Cause::Undecided) if none of them refuses.
    #[inline]
    pub fn new(outcome: Outcome) -> Self {
        let cause = if outcome
            .iter()
            .any(|(_, decision)| decision.is_unsupported())
        {
            Cause::Unsupported
        } else if outcome.refusals().next().is_some() {
            Cause::Limit
        } else {
            Cause::Undecided
        };
        Self {
            cause,
            outcome,
            form: Form::Full,
        }
    }

    /// A refusal for want of a key.
    pub fn missing(key: MissingKey) -> Self {
        Self {
            cause: Cause::MissingKey(key),
            outcome: Outcome::new(),
            form: Form::Full,
        }
    }

    /// Why.
    #[inline]
    pub fn cause(&self) -> &Cause {
        &self.cause
    }

    /// What the server lacks and what to do, for its operator; `None` where it lacks nothing.
    pub fn help(&self) -> Option<&OperatorHelp> {
        match &self.cause {
            Cause::MissingKey(missing) => missing.help(),
            Cause::Unsupported => Some(&UNSUPPORTED),
            Cause::Limit | Cause::Undecided => None,
        }
    }

    /// What each limit said.
    #[inline]
    pub fn outcome(&self) -> &Outcome {
        &self.outcome
    }

    /// The outcome alone.
    #[inline]
    pub fn into_outcome(self) -> Outcome {
        self.outcome
    }

    /// The outcome, of which none is left.
    // Not as a whole, which would be moved first.
    #[inline]
    pub(super) fn take_outcome(&mut self) -> Outcome {
        mem::take(&mut self.outcome)
    }

    /// Whether the answer must have an empty body: to a HEAD request, and over gRPC.
    ///
    /// For the closure of [`Http::body`](super::Http::body). `false` before that.
    pub fn is_bodiless(&self) -> bool {
        self.form != Form::Full
    }

    #[inline]
    pub(super) fn form(&self) -> Form {
        self.form
    }

    #[inline]
    pub(super) fn set_form(&mut self, form: Form) {
        self.form = form;
    }

    /// Whether the same request can never pass, however long its client waits.
    pub(super) fn is_forever(&self) -> bool {
        matches!(self.cause, Cause::Limit)
            && self
                .outcome
                .refusals()
                .any(|(_, decision)| decision.retry_after().is_none())
    }

    /// The least wait after which the same request may pass: the longest that a limit told.
    ///
    /// `None` when one of them never lets it pass, or nobody can tell.
    #[inline]
    pub fn retry_after(&self) -> Option<Duration> {
        if matches!(self.cause, Cause::Unsupported) {
            return None;
        }
        // Who cannot tell its wait does not make that of the others unknown.
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
                    Some(wait) => write!(f, "; retry after {}", Wait(wait)),
                    None => f.write_str("; this request can never pass"),
                }
            }
            Cause::Undecided => f.write_str("the rate limit could not be checked"),
            Cause::Unsupported => f.write_str("internal error"),
            Cause::MissingKey(missing) => missing.fmt(f),
        }
    }
}
