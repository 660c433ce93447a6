//! The figures against slow models, and the simulation: what leases keep, and what they cost.

mod accuracy;
mod architectures;
mod contention;
mod drawn;
mod faults;
mod figure_files;
mod fleet;
mod meter;
mod pacing;
mod program;
mod rules;
mod shared;
mod slow;
mod warm_up;
