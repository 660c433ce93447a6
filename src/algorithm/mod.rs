//! Rules: each computes a decision from a key's state, the time and a cost.
//!
//! Everything here is pure: no clock is read, no lock taken, no random number drawn. A step
//! may be run again for the same request after a lost race.

#[expect(clippy::module_inception, reason = "a file is named for what is in it")]
mod algorithm;
mod all;
mod any;
mod arithmetic;
mod block;
mod blockable;
mod both;
mod bucket;
mod codec;
mod counted;
mod leasable;
mod meter;
mod of_quota;
mod packed_kind;
mod packed_state;
mod registry;
mod scripted;
mod span;
mod state_kind;
mod step;
mod syncable;
mod text;
mod ticks;
mod two_buckets;
mod wait;
mod warm_curve;

#[cfg(feature = "tokio")]
pub(crate) use self::codec::{put_number, tag::FRAME, take_number, take_tag};
pub(crate) use self::meter::{Kind, Metering};
#[cfg(test)]
pub(crate) use self::registry::NAMES;
#[cfg(feature = "redis")]
pub(crate) use self::registry::{LUA, Lua};
pub(crate) use self::registry::{algorithms, rules};
#[cfg(feature = "redis")]
pub(crate) use self::scripted::{
    Part, can_grant, kind_in_script, logs_in_script, lone_algorithm, lone_bucket,
};

use self::{any::AnyState, registry::modules};

pub use self::{
    algorithm::Algorithm,
    all::All,
    any::AnyRule,
    block::Block,
    blockable::Blockable,
    codec::Codec,
    counted::{Counted, CountedRule, Slicing},
    leasable::{Leasable, Validity},
    scripted::Scripted,
    state_kind::StateKind,
    step::Step,
    syncable::Syncable,
};

/// The types in the hidden methods of [`Algorithm`], which the store in memory calls.
///
/// Nothing outside of this crate can make a [`Meter`](packed::Meter).
#[doc(hidden)]
pub mod packed {
    pub use super::{
        meter::Meter,
        packed_kind::PackedKind,
        packed_state::{PackedState, StoreTime, TwoWords},
        two_buckets::TwoBuckets,
    };
}

registry::algorithms!(modules);
