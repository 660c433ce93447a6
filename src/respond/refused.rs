//! A refusal as an error.

use std::{error::Error, fmt, time::Duration};

use super::{Cause, Refusal};

/// The error of a refused request, made by [`AsError`](super::AsError).
///
/// `Display` and `Debug` are fit for clients, as those of a [`Refusal`] are. Details for the operator are in
/// [`Refusal::help`].
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

    /// Returns the least wait after which the same request may pass.
    ///
    /// Returns `None` when it never may, or the wait is unknown.
    pub fn retry_after(&self) -> Option<Duration> {
        self.refusal.retry_after()
    }

    /// Returns `true` if a limit was reached.
    pub fn is_limit(&self) -> bool {
        matches!(self.refusal.cause(), Cause::Limit)
    }

    /// Returns `true` if the request costs more than a limit can ever admit, so that it must not be sent again as it is.
    pub fn is_oversized(&self) -> bool {
        self.refusal.is_oversized()
    }

    /// Returns `true` if the store could not decide, and is configured to refuse in that case.
    pub fn is_undecided(&self) -> bool {
        matches!(self.refusal.cause(), Cause::Undecided)
    }

    /// Returns `true` if the store [does not support](crate::store::Error::unsupported) the call, which is the server's
    /// fault.
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
