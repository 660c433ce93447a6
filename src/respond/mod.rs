//! From a decision to an answer that the callers of the inner service understand.
//!
//! | the inner service | answers | how |
//! |---|---|---|
//! | HTTP, gRPC, or both on one port | [`Http`], the default | 429 with a problem document; gRPC by the request's method and content type |
//! | gRPC whose body is made of nothing else, as tonic's | [`Grpc`] | `RESOURCE_EXHAUSTED` with `RetryInfo` |
//! | anything without HTTP | [`AsError`] | the service's error, [`From<Refused>`](Refused) |
//!
//! # Fields
//!
//! [`Headers`] chooses how admitted and refused responses tell a client how its limits stand. By default
//! they speak draft-ietf-httpapi-ratelimit-headers-11:
//!
//! ```text
//! RateLimit-Policy: "burst";q=100;w=60, "daily";q=1000;w=86400
//! RateLimit: "burst";r=50;t=30, "daily";r=999;t=86313
//! ```
//!
//! `r` within `t` seconds is never more than the policy's rate sustains. Whose share of a policy it is, `pk`, is told where
//! the [policy says so](crate::Policy::with_partition_key), as a digest. Browsers hide these fields
//! from scripts of other origins unless `Access-Control-Expose-Headers` names them: [`EXPOSED_HEADERS`]
//! is the list.
//!
//! # Extensions
//!
//! The [`Outcome`] of an admitted request lies in its extensions, that of a refused
//! one in the extensions of the answer, where outer layers find it. A request that no limit applies to is admitted with an
//! [empty](Outcome::is_empty) one. With the feature `axum`, a handler takes
//! an `Outcome` or an `Option<Outcome>` as its argument. [`Http::outcome`] turns outcomes off.

mod as_error;
mod body;
#[cfg(feature = "axum")]
mod extract;
mod grpc;
mod headers;
mod http;
mod number;
mod problem;
mod refusal;
mod reuse;
mod settings;
mod status_details;
mod text;
mod wait;

use crate::outcome::Outcome;

#[cfg(feature = "axum")]
pub use self::extract::MissingOutcome;
pub use self::{
    as_error::{AsError, Refused},
    body::{BodyFn, EmptyBody, MakeBody},
    grpc::Grpc,
    headers::{EXPOSED_HEADERS, Fields, Headers},
    http::Http,
    problem::ProblemBody,
    refusal::{Cause, Refusal},
};

/// Turns a refusal into what callers of the inner service expect, and marks admitted responses.
///
/// `Req`, `Res` and `Err` are those of the inner service. [`Http`] answers `http` requests, gRPC
/// among them; [`Grpc`] answers all of them as gRPC; [`AsError`] makes a refusal the service's error,
/// where there is no HTTP.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot answer `{Req}` with `{Res}` or the error `{Err}`",
    note = "`Http` (the default) needs `http::Request` and an `http::Response<B>` whose body is `From<String>`; \
            `Http::empty()` and `Grpc` need `B: Default`; `Http::body(|refusal, parts| …)` builds any body; \
            without HTTP, `.respond(AsError)` needs the service's error to be `From<Refused>`"
)]
pub trait Respond<Req, Res, Err> {
    /// What an admitted request leaves behind, to mark its response with.
    type Mark;

    /// Whether anybody wants to hear the outcome of an admitted request.
    ///
    /// Without it the layer makes none, and calls neither [`admit`](Self::admit) nor
    /// [`annotate`](Self::annotate).
    fn wants_outcome(&self) -> bool;

    /// Tells an admitted request of its outcome, before the inner service is called.
    ///
    /// The outcome of a request that is exempt from all limits is [empty](Outcome::is_empty), and its response is not
    /// [marked](Self::annotate).
    fn admit(&self, req: &mut Req, outcome: Outcome) -> Self::Mark;

    /// Marks the response of an admitted request.
    // No `self`: the response future need not share the layer's settings.
    fn annotate(mark: Self::Mark, res: &mut Res);

    /// Answers a request that does not go on.
    ///
    /// # Errors
    ///
    /// Where the service's error is how it tells a refusal.
    fn refuse(&self, req: Req, refusal: Refusal) -> Result<Res, Err>;
}
