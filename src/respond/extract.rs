//! The outcome, and what the call holds, as arguments of axum handlers.

#[cfg(feature = "tracing")]
use axum::extract::MatchedPath;
use axum::{
    extract::{FromRequestParts, OptionalFromRequestParts},
    response::{IntoResponse, Response},
};
use http::{StatusCode, request::Parts};
use std::convert::Infallible;

use crate::{key::OperatorHelp, outcome::Outcome, permit::Permit};

/// The rejection of a handler that takes an [`Outcome`], if the request carries none.
///
/// Put the route below a `RateLimitLayer`, and do not turn outcomes off with
/// [`Http::outcome`](super::Http::outcome). Requests that are exempt from the layer's limits carry
/// an [empty](Outcome::is_empty) outcome. A handler that also serves routes without a layer takes
/// an `Option<Outcome>`.
///
/// `Display` is fit for clients. Details for the operator are in [`help`](Self::help).
///
/// # Examples
///
/// ```
/// use axum::{Router, body::Body, extract::Request, routing::get};
/// use http::StatusCode;
/// use tollgate::Outcome;
/// use tower::ServiceExt;
///
/// // There is no `RateLimitLayer` around this route.
/// let app: Router = Router::new().route(
///     "/",
///     get(|outcome: Outcome| async move { format!("{outcome:?}") }),
/// );
///
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let response = app.oneshot(Request::new(Body::empty())).await.unwrap();
/// assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
/// # });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingOutcome;

impl MissingOutcome {
    /// Returns help for the operator: the likely mistakes, and their fixes.
    pub fn help(&self) -> OperatorHelp {
        OperatorHelp::new(HELP)
    }
}

const HELP: &str = "no rate limit outcome in this request's extensions: expected the route below a \
    `RateLimitLayer`; add the layer to the route or around it, or, if it is there, remove its `.outcome(false)`";

impl std::fmt::Display for MissingOutcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("internal error")
    }
}

impl std::error::Error for MissingOutcome {}

impl IntoResponse for MissingOutcome {
    /// Returns 500 without details, because the server is at fault.
    fn into_response(self) -> Response {
        StatusCode::INTERNAL_SERVER_ERROR.into_response()
    }
}

impl<S: Sync> FromRequestParts<S> for Outcome {
    type Rejection = MissingOutcome;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, MissingOutcome> {
        let outcome = parts.extensions.get().cloned();
        #[cfg(feature = "tracing")]
        if outcome.is_none() {
            let route = parts.extensions.get().map(MatchedPath::as_str);
            let route = route.unwrap_or_default();
            crate::log::once(route, &MissingOutcome.help(), |help| {
                tracing::error!(route, "{help} (logged once for each route)");
            });
        }
        outcome.ok_or(MissingOutcome)
    }
}

impl<S: Sync> OptionalFromRequestParts<S> for Outcome {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Infallible> {
        Ok(parts.extensions.get().cloned())
    }
}

impl<S: Sync> OptionalFromRequestParts<S> for Permit {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Infallible> {
        Ok(Self::of(&parts.extensions))
    }
}
