//! Leases: units that a store grants ahead.

mod first;
mod shared;
