//! The tower middleware: the layer, its limits, the service, and the future of a response.

mod future;
mod layer;
mod limit;
mod pending;
mod service;

pub use self::{
    future::ResponseFuture,
    layer::RateLimitLayer,
    limit::{FixedRule, Limit, RequestCost, SelectRule},
    service::RateLimit,
};
