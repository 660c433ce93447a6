//! Draws what a rule admits of drawn traffic: the rules of `tollgate`, compiled for a page.
//!
//! The page passes the text of a rule and the instants of requests. [`simulate`] decides each of
//! them with the rule itself, in simulated time, and counts the answers in the columns of the
//! picture.
//!
//! ```
//! use playground::{Axis, simulate};
//!
//! let axis = Axis { width_ms: 100, columns: 10 };
//! let report = simulate("token-bucket 10/s burst=2", &[0, 0, 0, 100], axis)?;
//! assert_eq!((report.totals.at_once, report.totals.refused), (3, 1));
//! # Ok::<(), String>(())
//! ```

mod exports;
mod json;
mod report;
mod rule;
mod simulation;
mod spans;

pub use self::{
    report::{Axis, Column, Report, Totals, Window},
    simulation::simulate,
};
