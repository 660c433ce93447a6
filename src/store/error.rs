//! Why a store could not tell.

use std::{convert::Infallible, fmt};

type Source = Box<dyn std::error::Error + Send + Sync>;

/// Why a store could not tell: neither a refusal nor an answer.
///
/// It tells all of its cause, and what to do, when it is displayed. So it has no
/// [`source`](std::error::Error::source), which whoever prints the whole chain would print again; [`get_ref`](Self::get_ref)
/// is the cause itself.
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
            source: self
                .source
                .as_ref()
                .map(|_| Causes(self).to_string().into()),
        }
    }

    /// What kept the store from deciding, for a downcast; [`Display`](fmt::Display) tells it already.
    ///
    /// ```
    /// use std::{error::Error as _, io};
    /// use tollgate::store::Error;
    ///
    /// let error = Error::unavailable(io::Error::from(io::ErrorKind::ConnectionRefused));
    /// assert_eq!(error.to_string(), "the rate limit store cannot be reached: connection refused");
    /// assert!(error.get_ref().is_some_and(|cause| cause.is::<io::Error>()));
    /// assert!(error.source().is_none());
    /// ```
    pub fn get_ref(&self) -> Option<&(dyn std::error::Error + Send + Sync + 'static)> {
        self.source.as_deref()
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
            Kind::Timeout => {
                "the rate limit store did not answer within its deadline: expected an answer in time; see that its \
                 server is up and not overloaded, or give it longer"
            }
            Kind::Contended => {
                "the rate limit store was too contended to decide: expected to get ahead of other writers in some \
                 attempt; allow more attempts, or spread the load over more keys"
            }
            Kind::Unavailable => "the rate limit store cannot be reached",
            Kind::Other => "the rate limit store could not decide",
        })?;
        if self.source.is_some() {
            write!(f, ": {}", Causes(self))?;
        }
        Ok(())
    }
}

/// The causes of an error, each one once: many tell those behind them already.
struct Causes<'a>(&'a Error);

impl fmt::Display for Causes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut told = String::new();
        let mut next = self
            .0
            .source
            .as_deref()
            .map(|source| source as &dyn std::error::Error);
        while let Some(cause) = next {
            let text = cause.to_string();
            if !told.contains(&text) {
                let colon = if told.is_empty() { "" } else { ": " };
                write!(f, "{colon}{text}")?;
                told.push_str(&text);
            }
            next = cause.source();
        }
        Ok(())
    }
}

impl std::error::Error for Error {}
