//! The error of a store, and the traits of error types.
//!
//! Three errors are no failures of the server, so no circuit breaker counts them:
//!
//! - Contention. The store is there. A fallback does not decide either: a client could get the
//!   share on top of the limit by contending.
//! - A write that is not taken (`StoreError::unwritten`). A full server still refuses the clients
//!   that are over their limit. If a breaker counted such answers, any client could open it by five
//!   calls under invented keys, and then be admitted without a limit.
//! - An error of one call (`StoreError::unsupported`). If a breaker counted it, one client could
//!   cut off all others; if `fail_open` admitted it, a client could choose to have no limit. So it
//!   is refused as the server's fault, under every policy.

use std::{convert::Infallible, fmt};

type BoxedCause = Box<dyn std::error::Error + Send + Sync>;

/// The reason why a store could not decide. It is never a refusal.
///
/// [`Display`](fmt::Display) prints the whole cause, and what to do. So there is no
/// [`source`](std::error::Error::source), which error reporters would print a second time;
/// [`get_ref`](Self::get_ref) returns the cause.
///
/// A store author chooses the constructor by what is wrong, and wrappers act on it:
///
/// | constructor | problem | a [circuit breaker](super::CircuitBreaker) counts | the request |
/// |---|---|---|---|
/// | [`timeout`](Self::timeout), [`unavailable`](Self::unavailable), [`other`](Self::other) | the server | a failure | is answered by the [failure mode](super::FailureMode), or decided by the [fallback](super::Fallback) |
/// | [`unwritten`](Self::unwritten) | the server takes no writes, and answers all the same | a success | as after a failure |
/// | [`contended`](Self::contended) | none: other writers were faster | a success | is answered as [chosen for contention](super::OnFailure::when_contended) |
/// | [`unsupported`](Self::unsupported) | this call alone | nothing | is refused with 500, in any failure mode |
///
/// ```
/// use std::io;
/// use tollgate::store::StoreError;
///
/// let error = StoreError::unavailable(io::Error::from(io::ErrorKind::ConnectionRefused));
/// assert!(error.is_unavailable());
/// assert_eq!(error.to_string(), "the rate limit store cannot be reached: connection refused");
/// ```
#[derive(Debug)]
pub struct StoreError {
    kind: ErrorKind,
    cause: Option<BoxedCause>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ErrorKind {
    Timeout,
    Contended,
    Unavailable,
    Unwritten,
    Unsupported,
    Other,
}

impl StoreError {
    fn without_cause(kind: ErrorKind) -> Self {
        Self { kind, cause: None }
    }

    fn with_cause(kind: ErrorKind, cause: impl Into<BoxedCause>) -> Self {
        Self {
            kind,
            cause: Some(cause.into()),
        }
    }

    /// Creates an error for a missing answer: none came within the deadline.
    pub fn timeout() -> Self {
        Self::without_cause(ErrorKind::Timeout)
    }

    /// Creates the error of a call that a circuit breaker rejects.
    pub(crate) fn circuit_open() -> Self {
        Self::unavailable(CircuitOpen)
    }

    /// Returns `true` if the call certainly changed nothing in the store.
    pub(crate) fn changed_nothing(&self) -> bool {
        let is_rejected = || {
            let cause = self.get_ref();
            cause.is_some_and(|cause| cause.is::<CircuitOpen>())
        };
        self.is_unwritten() || self.is_contended() || self.is_unsupported() || is_rejected()
    }

    /// Creates an error for a lost race: every attempt met another writer. The store works.
    pub fn contended() -> Self {
        Self::without_cause(ErrorKind::Contended)
    }

    /// Creates an error for a store that cannot be reached, or is not called because it could not
    /// be reached before.
    pub fn unavailable(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::with_cause(ErrorKind::Unavailable, cause)
    }

    /// Creates an error for a write that a working server does not take: it is full, read-only, or
    /// this user may only read.
    ///
    /// Such a server goes on refusing the clients that are over their limit, if a store need not
    /// write for that. So the error opens no circuit breaker: otherwise any client could have the
    /// breaker opened by a few calls that would be admitted, and all those clients would be
    /// answered by the failure mode. Use another constructor if the server refuses reads as well.
    ///
    /// ```
    /// use tollgate::store::StoreError;
    ///
    /// let error = StoreError::unwritten("out of memory; give it more");
    /// assert!(error.is_unwritten());
    /// assert_eq!(
    ///     error.to_string(),
    ///     "the rate limit store takes no writes: out of memory; give it more"
    /// );
    /// ```
    pub fn unwritten(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::with_cause(ErrorKind::Unwritten, cause)
    }

    /// Creates an error for a call that the store cannot decide although its server works.
    ///
    /// It affects this call or key alone: a rule that does not fit the store's numbers, a state too
    /// large for an item, a state that a newer release wrote. Such an error opens no circuit
    /// breaker, and `fail_open` does not admit the request: otherwise one client could lift its own
    /// limit, or cut off all others. Use a constant text, because each text is logged once.
    ///
    /// ```
    /// use tollgate::store::StoreError;
    ///
    /// let error = StoreError::unsupported(
    ///     "values of this store have at most 4096 bytes; choose a smaller limit",
    /// );
    /// assert!(error.is_unsupported());
    /// let message = "the rate limit store does not support this call: values";
    /// assert!(error.to_string().starts_with(message));
    /// ```
    pub fn unsupported(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::with_cause(ErrorKind::Unsupported, cause)
    }

    /// Creates an error for any other problem of the server, such as a missing permission.
    ///
    /// It affects other calls too. Use [`unsupported`](Self::unsupported) for a problem of one
    /// call, and [`unwritten`](Self::unwritten) for one of writes.
    pub fn other(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::with_cause(ErrorKind::Other, cause)
    }

    /// Returns an equal error, for another caller that waited for the same answer. Its cause is the
    /// text of this one's.
    #[cfg(feature = "tokio")]
    pub(crate) fn duplicate(&self) -> Self {
        Self {
            kind: self.kind,
            cause: self.cause.as_ref().map(|_| Causes(self).to_string().into()),
        }
    }

    /// Returns the cause, for a downcast; [`Display`](fmt::Display) already prints it.
    ///
    /// ```
    /// use std::{error::Error as _, io};
    /// use tollgate::store::StoreError;
    ///
    /// let error = StoreError::unavailable(io::Error::from(io::ErrorKind::ConnectionRefused));
    /// assert!(error.get_ref().is_some_and(|cause| cause.is::<io::Error>()));
    /// assert!(error.source().is_none());
    /// ```
    pub fn get_ref(&self) -> Option<&(dyn std::error::Error + Send + Sync + 'static)> {
        self.cause.as_deref()
    }

    /// Returns `true` if no answer came within the deadline.
    pub fn is_timeout(&self) -> bool {
        self.kind == ErrorKind::Timeout
    }

    /// Returns `true` if every attempt lost a race against another writer.
    pub fn is_contended(&self) -> bool {
        self.kind == ErrorKind::Contended
    }

    /// Returns `true` if the store could not be reached, or was not called for that reason.
    pub fn is_unavailable(&self) -> bool {
        self.kind == ErrorKind::Unavailable
    }

    /// Returns `true` if the server works, but took no write.
    pub fn is_unwritten(&self) -> bool {
        self.kind == ErrorKind::Unwritten
    }

    /// Returns `true` if the store cannot decide this call although its server works.
    pub fn is_unsupported(&self) -> bool {
        self.kind == ErrorKind::Unsupported
    }
}

impl From<Infallible> for StoreError {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            ErrorKind::Timeout => {
                "the rate limit store did not answer within its deadline: expected an answer in time; check that its \
                 server is up and not overloaded, or set a longer deadline"
            }
            ErrorKind::Contended => {
                "the rate limit store was too contended to decide: expected one attempt to win against other \
                 writers; allow more attempts, or spread the load over more keys"
            }
            ErrorKind::Unavailable => "the rate limit store cannot be reached",
            ErrorKind::Unwritten => "the rate limit store takes no writes",
            ErrorKind::Unsupported => "the rate limit store does not support this call",
            ErrorKind::Other => "the rate limit store could not decide",
        })?;
        if self.cause.is_some() {
            write!(f, ": {}", Causes(self))?;
        }
        Ok(())
    }
}

/// Prints the chain of causes, without those that an earlier text already contains.
struct Causes<'a>(&'a StoreError);

impl fmt::Display for Causes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut printed = String::new();
        let mut next = self
            .0
            .cause
            .as_deref()
            .map(|cause| cause as &dyn std::error::Error);
        while let Some(cause) = next {
            let text = cause.to_string();
            if !printed.contains(&text) {
                let colon = if printed.is_empty() { "" } else { ": " };
                write!(f, "{colon}{text}")?;
                printed.push_str(&text);
            }
            next = cause.source();
        }
        Ok(())
    }
}

impl std::error::Error for StoreError {}

/// An error type without values: the error of a store that cannot fail.
///
/// A layer takes only such stores. [`StoreExt`](super::StoreExt) makes one of any other.
/// Implemented for [`Infallible`] alone.
///
/// ```
/// use std::convert::Infallible;
/// use tollgate::{TokenBucket, store::{Local, NeverFails, Store}};
///
/// fn cannot_fail<Rule, S: Store<Rule, Error: NeverFails>>(_: &S) {}
/// cannot_fail::<TokenBucket, _>(&Local::new());
///
/// let ok: Result<u32, Infallible> = Ok(5);
/// assert_eq!(ok.unwrap_or_else(NeverFails::never), 5);
/// ```
#[diagnostic::on_unimplemented(
    message = "expected a store that cannot fail, found one that fails with `{Self}`",
    label = "this store can fail",
    note = "`.fail_open()` admits requests while the store fails, `.fail_closed()` refuses them with 503, \
            `.fall_back_to(local).share(1, nodes)` decides by a local store; all come from \
            `tollgate::store::StoreExt`, which is in the prelude"
)]
pub trait NeverFails: sealed::Sealed {
    /// Converts the error, which cannot exist, into any type.
    fn never<T>(self) -> T;
}

impl NeverFails for Infallible {
    fn never<T>(self) -> T {
        match self {}
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for std::convert::Infallible {}
}

/// An error type of a store, which determines what the calls of a [`Limiter`](crate::Limiter)
/// return.
///
/// | error | a call that returns a `T` returns |
/// |---|---|
/// | [`Infallible`]: `Local`, or any store with `fail_open`, `fail_closed` or `fall_back_to` | `T` |
/// | [`StoreError`]: `Redis`, `Memcached` and others | `Result<T, store::StoreError>` |
///
/// Implement it for the error type of a store of your own that is neither.
///
/// ```
/// use tollgate::store::MayFail;
///
/// struct Offline;
///
/// impl MayFail for Offline {
///     type Output<T> = Result<T, Offline>;
///
///     fn output<T>(result: Result<T, Offline>) -> Result<T, Offline> {
///         result
///     }
/// }
///
/// assert_eq!(std::convert::Infallible::output(Ok(5)), 5);
/// assert!(Offline::output::<u32>(Err(Offline)).is_err());
/// ```
pub trait MayFail: Sized {
    /// The return type of a call that returns a `T` if it succeeds.
    type Output<T>;

    /// Converts the result of a call.
    fn output<T>(result: Result<T, Self>) -> Self::Output<T>;
}

impl MayFail for Infallible {
    type Output<T> = T;

    fn output<T>(result: Result<T, Self>) -> T {
        match result {
            Ok(value) => value,
            Err(never) => match never {},
        }
    }
}

impl MayFail for StoreError {
    type Output<T> = Result<T, Self>;

    fn output<T>(result: Result<T, Self>) -> Result<T, Self> {
        result
    }
}

/// The cause of the error of a call that a circuit breaker did not let through to the store.
#[derive(Debug)]
struct CircuitOpen;

impl fmt::Display for CircuitOpen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("its circuit breaker is open after several failures in a row; calls resume after a pause, see the log for the failures")
    }
}

impl std::error::Error for CircuitOpen {}
