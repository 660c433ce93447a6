//! Charges that are settled when the body of a response has ended.

mod body;
mod layer;
mod service;

pub use self::{
    body::{MeteredBody, MeteredUnit},
    layer::SettleByBody,
    service::{SettleByBodyFuture, SettleByBodyService},
};
