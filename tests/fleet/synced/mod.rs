//! Background synchronisation: nodes that decide from memory, and push to a store later.

mod ahead;
mod keys;
pub(crate) mod nodes;
mod outage;
mod resets;
mod results;
mod room;
mod rules;
mod settlements;
mod several;

use crate::common::memory;
