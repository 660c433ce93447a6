//! The simulation: compared with an oracle, and what it does with texts that are no rule for it.
#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

mod comparison;
mod oracle;
mod texts;
