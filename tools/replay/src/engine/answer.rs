//! The answer to a call, as written to the output.

use std::time::Duration;

use tollgate::Decision;

/// A verdict; its text is one of three words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Allow,
    Delay,
    Deny,
}

/// A verdict and its numbers. `None` means not applicable, or never.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    pub verdict: Verdict,
    /// The class of an admitted call.
    pub class: Option<u8>,
    pub remaining: Option<u64>,
    pub retry_after: Option<Duration>,
    pub reset_after: Option<Duration>,
    pub delay: Option<Duration>,
}

impl Answer {
    /// There is no room for the key: refused, without numbers.
    pub const TURNED_AWAY: Self = Self {
        verdict: Verdict::Deny,
        class: None,
        remaining: None,
        retry_after: None,
        reset_after: None,
        delay: None,
    };

    pub fn of(decision: &Decision) -> Self {
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
    pub fn word(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Delay => "delay",
            Self::Deny => "deny",
        }
    }
}
