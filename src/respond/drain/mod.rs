//! The unread bodies of refused requests, read on so that the client gets its answer.

mod drain_bodies;
mod drains;
mod stats;

pub use self::{drain_bodies::DrainBodies, stats::DrainStats};
