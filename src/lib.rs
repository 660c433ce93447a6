//! Keyed rate limiting as tower middleware.
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod algorithm;
pub mod clock;
mod decision;
mod defaults;
mod delay;
mod error;
pub mod future;
pub mod key;
mod layer;
mod limit;
mod outcome;
pub mod prelude;
mod quota;
pub mod respond;
mod service;
pub mod store;

pub use self::{
    algorithm::{AnyRule, TokenBucket},
    clock::Timestamp,
    decision::{Charge, Cost, Decision, Verdict},
    error::Error,
    layer::RateLimitLayer,
    limit::{And, Asks, CostOf, Limit, Limits, Named, OwnRule, RuleOf},
    outcome::{Outcome, Policy, Unit},
    quota::Quota,
    service::RateLimit,
};
