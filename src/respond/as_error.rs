//! Refusals as errors, where there is no HTTP.

use std::{error::Error, fmt, time::Duration};

use super::{
    Respond,
    refusal::{Cause, Refusal},
};
use crate::outcome::Outcome;

/// Makes a refusal the service's error, for services whose error is `From<Refused>`.
///
/// `tower::BoxError` is, and so is what other tower middleware makes of it. Admitted responses are
/// not marked.
///
/// ```
/// use tollgate::{RateLimitLayer, TokenBucket, respond::{AsError, Refused}};
/// use tower::{BoxError, Service, ServiceBuilder, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), BoxError> {
/// let mut jobs = ServiceBuilder::new()
///     .layer(RateLimitLayer::new(TokenBucket::per_minute(1)).respond(AsError))
///     .service(service_fn(async |job: u32| Ok::<_, BoxError>(job + 1)));
///
/// assert_eq!(jobs.ready().await?.call(1).await?, 2);
/// let error = jobs.ready().await?.call(1).await.unwrap_err();
/// let refused = error.downcast_ref::<Refused>().ok_or("another error")?;
/// assert!(refused.is_limit());
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct AsError;

#[diagnostic::do_not_recommend]
impl<Req, Res, E: From<Refused>> Respond<Req, Res, E> for AsError {
    type Mark = ();

    #[inline]
    fn wants_outcome(&self) -> bool {
        false
    }

    fn admit(&self, _: &mut Req, _: Outcome) {}

    fn annotate((): (), _: &mut Res) {}

    fn refuse(&self, _: Req, refusal: Refusal) -> Result<Res, E> {
        Err(Refused::from(refusal).into())
    }
}

/// The error of a request that does not go on.
///
/// `Display` and `Debug` are fit for clients, as those of a [`Refusal`] are. What only an operator should read is
/// [`Refusal::help`].
pub struct Refused {
    // Keeps results small that hold no error.
    refusal: Box<Refusal>,
}

impl Refused {
    /// Why.
    pub fn refusal(&self) -> &Refusal {
        &self.refusal
    }

    /// The least wait after which the same request may pass. `None` when it never may, or
    /// nobody can tell.
    pub fn retry_after(&self) -> Option<Duration> {
        self.refusal.retry_after()
    }

    /// Whether a limit was reached.
    pub fn is_limit(&self) -> bool {
        matches!(self.refusal.cause(), Cause::Limit)
    }

    /// Whether the store could not tell, and its user chose to refuse then.
    pub fn is_undecided(&self) -> bool {
        matches!(self.refusal.cause(), Cause::Undecided)
    }

    /// Whether the store [does not support](crate::store::Error::unsupported) the call: the server's fault.
    pub fn is_unsupported(&self) -> bool {
        matches!(self.refusal.cause(), Cause::Unsupported)
    }

    /// Whether the request does not hold what its key is made of.
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
