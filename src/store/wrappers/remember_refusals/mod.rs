//! Refuses locally while a refusal of the store holds.

mod cache;
mod future;
mod refusal;
#[expect(clippy::module_inception, reason = "a file is named for what is in it")]
mod remember_refusals;

pub use self::{
    future::{ForgetFuture, RememberFuture},
    remember_refusals::RememberRefusals,
};
