//! The tower middleware: the layer, its limits, the service, and the future of a response.
//!
//! Each file imports only from those before it: `per_request`, `role`, `limit`, `limits`, `asking`,
//! `asks`, `disposition`, `config`, `late`, `kept`, `kept_looks`, `pending`, `future`, `service`,
//! `layer`, `one_limit`, `new`.

mod asking;
mod asks;
mod config;
mod disposition;
mod future;
mod kept;
mod kept_looks;
mod late;
mod layer;
mod limit;
mod limits;
mod new;
mod one_limit;
mod pending;
mod per_request;
mod role;
mod same_state;
mod service;

pub use self::{
    future::ResponseFuture,
    layer::RateLimitLayer,
    limit::Limit,
    limits::{Limits, LimitsBy},
    per_request::{FixedRule, RequestCost, SelectRule},
    service::RateLimit,
};
