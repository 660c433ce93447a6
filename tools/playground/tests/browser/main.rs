//! The page in Chromium: what it shows is what the simulation returns, whichever way a reader types
//! and draws. `build.sh` must have built it.
#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

mod chromium;
mod decisions;
mod drawing;
mod errors;
mod looks;
mod page;
