//! What came of a call, as the output tells it.

use std::time::Duration;

use tollgate::Decision;

/// The verdict's three words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Allow,
    Delay,
    Deny,
}

/// A verdict and its numbers; `None` is what does not apply, or never happens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    pub(crate) verdict: Verdict,
    /// Of what was admitted.
    pub(crate) class: Option<u8>,
    pub(crate) remaining: Option<u64>,
    pub(crate) retry_after: Option<Duration>,
    pub(crate) reset_after: Option<Duration>,
    pub(crate) delay: Option<Duration>,
}

impl Answer {
    /// No room for the key: refused, and nothing is known.
    pub(crate) const TURNED_AWAY: Self = Self {
        verdict: Verdict::Deny,
        class: None,
        remaining: None,
        retry_after: None,
        reset_after: None,
        delay: None,
    };

    pub(crate) fn of(decision: &Decision) -> Self {
        let (verdict, delay) = match decision.verdict() {
            tollgate::Verdict::Delay(wait) => (Verdict::Delay, Some(wait)),
            _ if decision.is_admitted() => (Verdict::Allow, None),
            _ => (Verdict::Deny, None),
        };
        Self {
            verdict,
            class: decision.is_admitted().then(|| decision.class()),
            remaining: decision.remaining(),
            retry_after: decision.retry_after(),
            reset_after: Some(decision.reset_after()),
            delay,
        }
    }
}

impl Verdict {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Delay => "delay",
            Self::Deny => "deny",
        }
    }
}
