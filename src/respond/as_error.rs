//! The responder for services without HTTP.

use super::{Refusal, RefuseLate, Refused, Respond};
use crate::outcome::Outcome;

/// Returns refusals as the service's error, for services whose error is `From<Refused>`.
///
/// `tower::BoxError` is, and so is the error of most other tower middleware. Admitted responses are not annotated.
///
/// # Examples
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AsError;

#[diagnostic::do_not_recommend]
impl<Req, Res, E: From<Refused>> Respond<Req, Res, E> for AsError {
    type Annotation = ();

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

#[diagnostic::do_not_recommend]
impl<Res, E: From<Refused>> RefuseLate<Res, E> for AsError {
    fn refuse_late(&self, _: Res, refusal: Refusal) -> Result<Res, E> {
        Err(Refused::from(refusal).into())
    }
}
