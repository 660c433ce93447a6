//! The conformance suite: correct stores pass it, and each broken store fails the law that it
//! breaks.

mod broken;
mod faulty;
mod flawed;
mod leased;
mod recorder;
mod right;
mod synced;

use crate::common::{memory, rules};

/// The number of random timelines for a store that should keep all laws: usually as many as a suite
/// makes by itself.
pub(crate) fn timelines() -> u64 {
    support::cases(32).max(4)
}
