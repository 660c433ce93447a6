//! Why a store could not tell.

use std::{convert::Infallible, fmt};

type Source = Box<dyn std::error::Error + Send + Sync>;

/// Why a store could not tell: neither a refusal nor an answer.
///
/// Opaque; ask it [`is_timeout`](Self::is_timeout), [`is_contended`](Self::is_contended) or
/// [`is_unavailable`](Self::is_unavailable). Wrappers ask, too: for a [circuit breaker](super::BehindBreaker) and a
/// [fallback](super::FallBackTo) all but contention are failures, and it has [a choice of its own](super::OnFailure::when_contended).
#[derive(Debug)]
pub struct Error {
    kind: Kind,
    source: Option<Source>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
enum Kind {
    Timeout,
    Contended,
    Unavailable,
    Other,
}

impl Error {
    /// No answer came within the deadline.
    pub fn timeout() -> Self {
        Self {
            kind: Kind::Timeout,
            source: None,
        }
    }

    /// Every attempt lost its race against another writer: neither a refusal nor an outage.
    pub fn contended() -> Self {
        Self {
            kind: Kind::Contended,
            source: None,
        }
    }

    /// The store cannot be reached, or is not asked, because it could not be reached before.
    pub fn unavailable(source: impl Into<Source>) -> Self {
        Self {
            kind: Kind::Unavailable,
            source: Some(source.into()),
        }
    }

    /// Anything else that kept the store from deciding.
    ///
    /// Told at once, as a [ready](super::Check::Ready) answer, it is about the call, such as a rule that does not fit: a circuit
    /// breaker does not count it.
    pub fn other(source: impl Into<Source>) -> Self {
        Self {
            kind: Kind::Other,
            source: Some(source.into()),
        }
    }

    /// The same error for somebody else who waited for the same answer.
    #[cfg(feature = "tokio")]
    pub(super) fn again(&self) -> Self {
        Self {
            kind: self.kind,
            source: self.source.as_ref().map(|source| source.to_string().into()),
        }
    }

    /// Whether no answer came within the deadline.
    pub fn is_timeout(&self) -> bool {
        self.kind == Kind::Timeout
    }

    /// Whether every attempt lost its race against another writer.
    pub fn is_contended(&self) -> bool {
        self.kind == Kind::Contended
    }

    /// Whether the store could not be reached, or was not asked for that reason.
    pub fn is_unavailable(&self) -> bool {
        self.kind == Kind::Unavailable
    }

    /// Whether it is none of the others.
    pub(super) fn is_other(&self) -> bool {
        self.kind == Kind::Other
    }
}

impl From<Infallible> for Error {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            Kind::Timeout => "the rate limit store did not answer within its deadline",
            Kind::Contended => "the rate limit store was too contended to decide",
            Kind::Unavailable => "the rate limit store cannot be reached",
            Kind::Other => "the rate limit store could not decide",
        })
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
