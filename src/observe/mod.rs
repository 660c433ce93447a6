//! Observers: what a layer did, event by event, for counters, metrics and logs.

mod event;
mod observer;

pub use self::{event::Event, observer::Observer};
