//! Limits through a mock cluster in this process, or through the brokers that `TOLLGATE_KAFKA`
//! names.
#![allow(missing_docs, reason = "tests")]

mod aggregators;
mod cluster;
mod programs;
mod repetitions;
mod shared_limits;
mod staleness;
