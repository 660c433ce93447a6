//! The tower middleware: the layer, its limits, the service, and the future of a response.
//!
//! Each file imports only from those before it: `per_request`, `limit`, `limits`, `asks`, `disposition`, `config`, `pending`,
//! `future`, `service`, `layer`, `new`.

mod asks;
mod config;
mod disposition;
mod future;
mod layer;
mod limit;
mod limits;
mod new;
mod pending;
mod per_request;
mod service;

pub use self::{
    future::ResponseFuture,
    layer::RateLimitLayer,
    limit::Limit,
    limits::{Limits, LimitsBy},
    per_request::{FixedRule, RequestCost, SelectRule},
    service::RateLimit,
};
