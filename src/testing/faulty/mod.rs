//! A store with faults.

mod fault;
mod faults;
#[expect(clippy::module_inception, reason = "a file is named for what is in it")]
mod faulty;
mod future;

pub use self::{
    fault::Fault,
    faults::{FaultCounts, Faults},
    faulty::Faulty,
    future::FaultyFuture,
};
