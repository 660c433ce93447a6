//! Observers: what a layer did, event by event, for counters, metrics and logs.
//!
//! | type | contents | memory |
//! |---|---|---|
//! | [`Observer`], [`Event`] | the trait of observers, and what they are told | |
//! | [`TopRefused`] | an observer: the keys that are refused and nearly refused most | 200 bytes per key of the capacity |
//! | [`TopKeys`], [`TopKey`] | the most frequent keys of any events | 100 bytes per key of the capacity |
//! | [`DistinctKeys`] | the number of distinct keys, with a standard error of 3.2 % | 8 KiB |

mod distinct_keys;
mod event;
mod key_index;
mod observer;
mod space_saving;
mod top_key;
mod top_keys;
mod top_refused;

pub use self::{
    distinct_keys::DistinctKeys, event::Event, observer::Observer, top_key::TopKey,
    top_keys::TopKeys, top_refused::TopRefused,
};
