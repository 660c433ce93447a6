//! Leases: units that a store grants ahead.

mod all_or_nothing;
mod death;
mod faults;
mod first;
mod release;
mod rules;
mod shared;
mod slow;
