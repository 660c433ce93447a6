//! The unit of time of buckets and queues: a tick, a third of a nanosecond.
//!
//! States consist of [`Ticks`], signed spans of time. A rule counts levels in the [`Units`] of its [`Rate`], in numbers of a
//! [`Width`]; a script counts them in those of a [`ScriptRate`].

mod rate;
mod script_rate;
mod signed_span;
mod units;
mod width;

pub(super) use self::{
    rate::Rate,
    script_rate::ScriptRate,
    signed_span::{MOST_NANOS, PARTS_PER_NANO, PER_NANO, Ticks},
    units::Units,
    width::Width,
};
