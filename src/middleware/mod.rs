//! The tower middleware: the layer, its limits, the service, and the future of a response.
//!
//! A request goes from `service` to the extractors of its limits (`limits`), to the store
//! (`asking`), and to the inner service or to the responder (`config`). It waits in `pending`, and
//! for calls in flight by `turn`; `future` awaits the response, and `settle` corrects the charges
//! by it.

// In this order on the page of the layer: its constructors, the settings of a limit, those of the
// layer.
mod boxed;

mod limit;

mod asking;
mod config;
mod future;
mod hold;
mod layer;
mod limits;
mod pending;
mod per_request;
mod same_state;
mod service;
mod settle;
mod turn;

#[cfg(feature = "config")]
pub(crate) use self::{
    boxed::BoxSettle,
    config::{BoxObserver, Config},
    settle::SettleLater,
};
pub use self::{
    boxed::{BoxLayer, BoxLimit},
    future::ResponseFuture,
    layer::RateLimitLayer,
    limit::Limit,
    limits::Limits,
    per_request::{By, RequestCost, SelectRule},
    service::RateLimit,
};
