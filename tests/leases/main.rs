//! Leases: units that a store grants ahead.

mod faults;
mod first;
mod release;
mod shared;
