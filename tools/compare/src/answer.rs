//! Answers of limits.

use std::time::Duration;

/// What a limit answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Admitted,
    /// Refused, with the wait that the client is told.
    Refused(Option<Duration>),
    /// Refused, and the answer differs from those of calls that may come again.
    Never,
}

impl Answer {
    pub fn is_admitted(self) -> bool {
        self == Self::Admitted
    }
}
