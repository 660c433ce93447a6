//! Fleets of real processes with leases on one server, some of which are killed or frozen. An exact
//! meter reads what they admitted.
//!
//! A test program runs itself again for each node: [`node::Orders`] are in an environment variable.
#![allow(dead_code, reason = "each test program uses its part")]
#![allow(unreachable_pub, reason = "items of a test module")]

pub mod journal;
pub mod limits;
pub mod meter;
pub mod node;
pub mod run;
