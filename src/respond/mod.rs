//! Responses to refused requests, and the rate limit fields of admitted ones.
//!
//! | the inner service | responder | refusals |
//! |---|---|---|
//! | HTTP, gRPC, or both on one port | [`Http`], the default | 429 with a problem document, or 413 if the request can never pass; gRPC by the request's method and content type |
//! | gRPC with a body that is `Default`, such as tonic's | [`Grpc`] | `RESOURCE_EXHAUSTED` with `RetryInfo` |
//! | anything without HTTP | [`AsError`] | the service's error, [`From<Refused>`](Refused) |
//!
//! A responder of your own implements [`Respond`], whose page has an example. If clients upload
//! over HTTP/1, add `.drain_bodies()` to [`Http`], so that they see a refusal instead of a
//! connection reset (feature `tokio`, which `axum` enables).
//!
//! # Header fields
//!
//! [`Headers`] chooses the rate limit fields of admitted and refused responses. The default is
//! draft-ietf-httpapi-ratelimit-headers-11:
//!
//! ```text
//! RateLimit-Policy: "burst";q=100;w=60, "daily";q=1000;w=86400
//! RateLimit: "burst";r=50;t=30, "daily";r=999;t=86313
//! ```
//!
//! `q` units per `w` seconds is the policy, and `r` units within `t` seconds never exceed its
//! sustained rate. Of several rules on one key, `q` and `w` are those of the slowest rule, as it
//! was written, and `r` is what all of them leave. If the [policy allows
//! it](crate::Policy::with_partition_key), `pk` identifies the client's partition by a digest.
//! Browsers hide these fields from scripts of other origins unless `Access-Control-Expose-Headers`
//! names them; [`Headers::EXPOSED`] is the list.
//!
//! # Extensions
//!
//! The [`Outcome`] of an admitted request is in the extensions of the request. That of a refused
//! request is in the extensions of the response, for outer layers. A request that is exempt from
//! all limits carries an [empty](crate::Outcome::is_empty) outcome. With the feature `axum`, a
//! handler takes an `Outcome` or an `Option<Outcome>` as an argument. [`Http::outcome`] turns
//! outcomes off.

mod body;
#[cfg(feature = "tokio")]
mod drain;
#[cfg(feature = "axum")]
mod extract;
mod grpc;
mod headers;
mod hold;
mod http;
mod interner;
pub(crate) mod metered;
mod refusal;
mod settings;

#[cfg(feature = "tokio")]
#[cfg_attr(docsrs, doc(cfg(feature = "tokio")))]
pub use self::drain::{DrainBodies, DrainStats};
#[cfg(feature = "axum")]
pub use self::extract::MissingOutcome;
#[cfg(feature = "introspect")]
pub(crate) use self::headers::value::base64;
pub use self::metered::{MeteredBody, MeteredUnit, SettleByBody};
pub use self::{
    body::{BodyFn, EmptyBody, ProblemBody},
    grpc::Grpc,
    headers::{Fields, Headers, UpstreamFields},
    http::Http,
    refusal::{AsError, Cause, Refusal, Refused},
    settings::OversizedCode,
};

use crate::{outcome::Outcome, permit::Permit};

/// Turns refusals into responses or errors of the inner service, and annotates admitted responses.
///
/// `Req`, `Res` and `Err` are the request, response and error of the inner service. [`Http`]
/// answers `http` requests, including gRPC; [`Grpc`] answers all of them as gRPC; [`AsError`] turns
/// a refusal into the service's error, for services without HTTP.
///
/// # Examples
///
/// A responder for a text protocol of lines:
///
/// ```
/// use std::convert::Infallible;
/// use tollgate::{Outcome, RateLimitLayer, TokenBucket, respond::{Refusal, Respond}};
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
///
/// #[derive(Clone)]
/// struct Lines;
///
/// impl<E> Respond<String, String, E> for Lines {
///     /// The units that remain, from the decision to the response.
///     type Annotation = Option<u64>;
///
///     fn wants_outcome(&self) -> bool {
///         true
///     }
///
///     fn admit(&self, _: &mut String, outcome: Outcome) -> Option<u64> {
///         outcome.nearest().and_then(|(_, decision)| decision.remaining())
///     }
///
///     fn annotate(remaining: Option<u64>, line: &mut String) {
///         if let Some(remaining) = remaining {
///             line.push_str(&format!(" ({remaining} left)"));
///         }
///     }
///
///     fn refuse(&self, _: String, refusal: Refusal) -> Result<String, E> {
///         let seconds = refusal.retry_after().map_or(0, |wait| wait.as_secs() + 1);
///         Ok(format!("BUSY {seconds}"))
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Infallible> {
/// let echo = ServiceBuilder::new()
///     .layer(RateLimitLayer::new(TokenBucket::per_hour(1)).respond(Lines))
///     .service(service_fn(async |line: String| Ok::<_, Infallible>(line)));
///
/// assert_eq!(echo.clone().oneshot("hello".to_owned()).await?, "hello (0 left)");
/// assert_eq!(echo.oneshot("hello".to_owned()).await?, "BUSY 3600");
/// # Ok(()) }
/// ```
#[doc(alias = "error handler")]
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot answer `{Req}` with `{Res}` or the error `{Err}`",
    note = "`Http` (the default) needs `http::Request` and an `http::Response<B>` whose body is `From<Cow<'static, str>>`; \
            `Http::empty()` and `Grpc` need `B: Default`; a closure of `Http::body` returns the body, which is `http_body::Body + Default`; \
            without HTTP, `.respond(AsError)` needs the service's error to be `From<Refused>`",
    note = "if `B` is the body of a layer below, such as tower-http's `TraceLayer` or an interceptor of tonic, turn it back just below the limit: \
            `.layer(tower_http::map_response_body::MapResponseBodyLayer::new(Body::new))` with the `Body` of axum or tonic"
)]
#[expect(unused_variables, reason = "their names are documentation")]
pub trait Respond<Req, Res, Err> {
    /// The data that [`admit`](Self::admit) passes to [`annotate`](Self::annotate).
    type Annotation;

    /// Returns `true` if admitted requests or their responses carry their outcome.
    ///
    /// If `false`, the layer builds no outcome for them, and calls neither [`admit`](Self::admit)
    /// nor [`annotate`](Self::annotate).
    fn wants_outcome(&self) -> bool;

    /// Receives the outcome of an admitted request before the inner service is called.
    ///
    /// The outcome of a request that is exempt from all limits is [empty](Outcome::is_empty), and
    /// its response is not [annotated](Self::annotate).
    fn admit(&self, req: &mut Req, outcome: Outcome) -> Self::Annotation;

    /// Returns the outcome that an outer layer has put into a request; `None`, the default, if it
    /// is unknown.
    ///
    /// A layer uses it to detect that it [charges a request
    /// twice](crate::RateLimitLayer::misconfigured).
    fn outer_outcome<'a>(&self, req: &'a Req) -> Option<&'a Outcome> {
        None
    }

    /// Annotates the response of an admitted request, for example with header fields.
    // No `self`, so that the response future does not hold the layer's settings.
    fn annotate(annotation: Self::Annotation, res: &mut Res);

    /// Updates the annotation of a request whose charges were corrected before its response.
    /// `outcome` has the corrected decisions.
    ///
    /// Called for limits with [`charge_handle`](crate::Limit::charge_handle),
    /// [`charge_if`](crate::Limit::charge_if) and [`charge_after`](crate::Limit::charge_after), if
    /// the store answers at once. The default leaves the annotation as it is.
    fn revise(&self, annotation: Self::Annotation, outcome: &Outcome) -> Self::Annotation {
        annotation
    }

    /// Puts a clone of what an admitted request [holds](Permit) into the request, for a handler
    /// that goes on after its response. The default does not.
    fn carry_permit(&self, req: &mut Req, permit: &Permit) {}

    /// Ties what a call holds to its response. The default gives it back at once, so a responder
    /// that wraps another one forwards this, [`carry_permit`](Self::carry_permit),
    /// [`revise`](Self::revise) and [`outer_outcome`](Self::outer_outcome): the methods with a
    /// default.
    // No `self`, as in `annotate`.
    fn attach_permit(permit: Permit, res: &mut Res) {
        drop(permit);
    }

    /// Answers a request that was refused.
    ///
    /// # Errors
    ///
    /// Returns the service's error if that is how the service reports a refusal.
    fn refuse(&self, req: Req, refusal: Refusal) -> Result<Res, Err>;
}

/// A request whose response has a type that follows from its own: `http`'s, with one type of body.
///
/// ```
/// use tollgate::respond::Exchange;
///
/// type Response = <http::Request<String> as Exchange>::Response;
/// let response: Response = http::Response::new(String::new());
/// # let _ = response;
/// ```
pub trait Exchange {
    /// The response.
    type Response;
}

impl<B> Exchange for ::http::Request<B> {
    type Response = ::http::Response<B>;
}

/// Refuses requests whose handlers have already responded.
///
/// A limit with [`charge_after`](crate::Limit::charge_after) charges after the response. If it
/// refuses the charge, the client must not see the response. [`Http`], [`Grpc`] and [`AsError`]
/// implement it; implement it for a responder of your own to use it with such limits, or with
/// [lists](crate::RateLimitLayer::list), any of whose limits may be one.
///
/// ```
/// use tollgate::respond::{Refusal, RefuseLate};
///
/// /// A responder for a text protocol of lines.
/// struct Lines;
///
/// impl<E> RefuseLate<String, E> for Lines {
///     fn refuse_late(&self, _: String, refusal: Refusal) -> Result<String, E> {
///         Ok(format!("BUSY: {refusal}"))
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "the responder `{Self}` cannot refuse a request after its response",
    note = "`.charge_after(…)` and lists of boxed limits need that: use the responder `Http`, `Grpc` or `AsError`, implement `respond::RefuseLate` for your own, or \
            take `.charge_if(…)` instead, which charges before the request"
)]
pub trait RefuseLate<Res, Err> {
    /// Replaces a response with a refusal.
    ///
    /// # Errors
    ///
    /// Returns the service's error if that is how the service reports a refusal.
    fn refuse_late(&self, res: Res, refusal: Refusal) -> Result<Res, Err>;
}
