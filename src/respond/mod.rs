//! Responses to refused requests, and the rate limit fields of admitted ones.
//!
//! | the inner service | responder | refusals |
//! |---|---|---|
//! | HTTP, gRPC, or both on one port | [`Http`], the default | 429 with a problem document, or 413 if the request can never pass; gRPC by the request's method and content type |
//! | gRPC with a body that is `Default`, as tonic's | [`Grpc`] | `RESOURCE_EXHAUSTED` with `RetryInfo` |
//! | anything without HTTP | [`AsError`] | the service's error, [`From<Refused>`](Refused) |
//!
//! A responder of your own implements [`Respond`], whose page has an example. If clients upload over HTTP/1, add `.drain_bodies()` to [`Http`], so
//! that they see a refusal instead of a reset (features `http-body` and `tokio`, which `axum` enables).
//!
//! # Fields
//!
//! [`Headers`] chooses the rate limit fields of admitted and refused responses. The default is
//! draft-ietf-httpapi-ratelimit-headers-11:
//!
//! ```text
//! RateLimit-Policy: "burst";q=100;w=60, "daily";q=1000;w=86400
//! RateLimit: "burst";r=50;t=30, "daily";r=999;t=86313
//! ```
//!
//! `r` units within `t` seconds never exceed the sustained rate of the policy. If the
//! [policy allows it](crate::Policy::with_partition_key), `pk` identifies the client's partition by a digest. Browsers hide
//! these fields from scripts of other origins unless `Access-Control-Expose-Headers` names them; [`EXPOSED_HEADERS`] is the
//! list.
//!
//! # Extensions
//!
//! The [`Outcome`](crate::Outcome) of an admitted request is in the extensions of the request. That of a refused request is
//! in the extensions of the response, for outer layers. A request that is exempt from all limits carries an
//! [empty](crate::Outcome::is_empty) outcome. With the feature `axum`, a handler takes an `Outcome` or an `Option<Outcome>`
//! as an argument. [`Http::outcome`] turns outcomes off.

mod as_error;
mod body;
mod carry_handle;
#[cfg(all(feature = "http-body", feature = "tokio"))]
mod drain;
#[cfg(feature = "axum")]
mod extract;
mod grpc;
mod grpc_code;
mod grpc_status_details;
mod headers;
mod http;
mod kept;
#[cfg(feature = "http-body")]
mod metered;
mod oversized;
mod problem_body;
mod refusal;
mod refuse_late;
mod refused;
#[expect(clippy::module_inception, reason = "a file is named for what is in it")]
mod respond;
mod reused_response;
mod shared_settings;
mod wait_text;

#[cfg(all(feature = "http-body", feature = "tokio"))]
#[cfg_attr(docsrs, doc(cfg(all(feature = "http-body", feature = "tokio"))))]
pub use self::drain::{DrainBodies, DrainStats};
#[cfg(feature = "axum")]
pub use self::extract::MissingOutcome;
pub(crate) use self::headers::value::base64;
#[cfg(feature = "http-body")]
#[cfg_attr(docsrs, doc(cfg(feature = "http-body")))]
pub use self::metered::{
    MeteredBody, MeteredUnit, SettleByBody, SettleByBodyFuture, SettleByBodyService,
};
pub use self::{
    as_error::AsError,
    body::{BodyFn, EmptyBody, MakeBody},
    grpc::Grpc,
    grpc_code::grpc_code,
    headers::{EXPOSED_HEADERS, Fields, Headers, UpstreamFields},
    http::Http,
    oversized::OversizedCode,
    problem_body::ProblemBody,
    refusal::{Cause, Refusal},
    refuse_late::RefuseLate,
    refused::Refused,
    respond::Respond,
};
