//! Leases: units that a store grants ahead.

mod all_or_nothing;
mod death;
mod faults;
mod first;
mod first_call;
mod loss;
mod memory;
mod refunds;
mod release;
mod rules;
mod shared;
mod slow;

use crate::common::{fleet::meter, map_store};
