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
