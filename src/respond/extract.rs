//! The outcome as an argument of axum's handlers.

#[cfg(feature = "tracing")]
use axum::extract::MatchedPath;
use axum::{
    extract::{FromRequestParts, OptionalFromRequestParts},
    response::{IntoResponse, Response},
};
use http::{StatusCode, request::Parts};
use std::convert::Infallible;

use crate::{key::OperatorHelp, outcome::Outcome};

/// No layer left an [`Outcome`] in the request: an axum handler asked for one in vain.
///
/// Put the route below a `RateLimitLayer`, and do not turn outcomes off by
/// [`Http::outcome`](super::Http::outcome). Requests that are exempt from the layer's limits have an outcome, an
/// [empty](Outcome::is_empty) one. A handler that also serves routes without a layer takes an `Option<Outcome>`.
///
/// `Display` is fit for clients, since handlers that take a `Result<Outcome, MissingOutcome>` may send it to them. What to do
/// is [`help`](Self::help) for the operator.
#[derive(Clone, Copy, Debug)]
pub struct MissingOutcome;

impl MissingOutcome {
    /// What the program lacks and what to do, for its operator.
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
    /// 500, without details: the server lacks something, not the client.
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
