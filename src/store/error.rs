//! Why a store could not tell.

use std::{convert::Infallible, fmt};

type Source = Box<dyn std::error::Error + Send + Sync>;

/// Why a store could not tell: neither a refusal nor an answer.
///
/// It tells all of its cause, and what to do, when it is displayed. So it has no
/// [`source`](std::error::Error::source), which whoever prints the whole chain would print again; [`get_ref`](Self::get_ref)
/// is the cause itself.
///
/// Opaque; ask it what it is. Wrappers ask, too:
///
/// | made by | what is wrong | a [circuit breaker](super::CircuitBreaker) | the request |
/// |---|---|---|---|
/// | [`timeout`](Self::timeout), [`unavailable`](Self::unavailable), [`other`](Self::other) | the server | counts a failure | as the [policy](super::OnFailure) or the [fallback](super::FallBackTo) says |
/// | [`contended`](Self::contended) | nothing: others were first | counts an answer | as [chosen for contention](super::OnFailure::when_contended) |
/// | [`unsupported`](Self::unsupported) | this call alone | counts neither | is refused as the server's fault (500), whatever the policy |
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
    Unsupported,
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

    /// The store cannot decide this call, though its server is well: it concerns the call, or the key, and nobody else.
    ///
    /// A rule that does not fit the store's numbers, a state too large for an item, a state that a newer release wrote. Such an
    /// error opens no circuit breaker, and no `fail_open` lets its request pass: otherwise one client could open the gate for
    /// itself, or close it for all. The cause should be the same text each time, because it is logged once for each text.
    ///
    /// ```
    /// use tollgate::store::Error;
    ///
    /// let error = Error::unsupported("values of this store have at most 4096 bytes; choose a smaller limit");
    /// assert!(error.is_unsupported());
    /// assert!(error.to_string().starts_with("the rate limit store does not support this call: values"));
    /// ```
    pub fn unsupported(source: impl Into<Source>) -> Self {
        Self {
            kind: Kind::Unsupported,
            source: Some(source.into()),
        }
    }

    /// Anything else that kept the store from deciding, such as a server that lacks a right or has no memory left.
    ///
    /// It concerns the server, and so other calls as well. What concerns one call alone is [`unsupported`](Self::unsupported).
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

    /// Whether the store cannot decide this call, though its server is well.
    pub fn is_unsupported(&self) -> bool {
        self.kind == Kind::Unsupported
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
            Kind::Unsupported => "the rate limit store does not support this call",
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
