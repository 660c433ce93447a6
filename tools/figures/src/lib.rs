//! Draws the figures of the literature with the real rules, and simulates fleets of nodes that
//! share limits by the real leases. Time is simulated.
//!
//! ```text
//! cd tools/figures
//! cargo run --release -- all --out DIR
//! cargo run --release -- accuracy --limit 100/60s --out DIR
//! cargo run --release -- simulate --scenario hot-8
//! cargo run --release -- simulate --scenario hot-8 --nodes 100 --delay 5ms --loss 0.01 --csv
//! ```
//!
//! | module | contents |
//! |---|---|
//! | `cli` | the commands |
//! | `figure` | the trait of figures, their tables and files, and the list of all |
//! | `chart` | draws lines over axes, as SVG |
//! | `accuracy`, `pacing`, `warm_up` | a figure each |
//! | `contention`, `architectures` | figures of simulated clients and fleets |
//! | `window_count` | the exact count of the last window |
//!
//! | module of the simulation of fleets | contents |
//! |---|---|
//! | `scenario`, `standard` | what is simulated; scenarios with names |
//! | `timeline`, `node_clock` | simulated time; the clock of a node, with offset and drift |
//! | `clients`, `keys`, `balancer` | when calls come, for which key, and to which node |
//! | `node` | a node with the real leases |
//! | `network`, `remote_store`, `server` | the way to the store, the node's end of it, and the store |
//! | `owned_delta` | units on their way, which a node admitted by itself |
//! | `queue` | a server that does one thing after the other |
//! | `faults` | outages, partitions, freezes and deaths |
//! | `fleet` | runs a scenario |
//! | `record`, `meter`, `exact`, `report` | what happened, the exact limit, an exact limiter, and the numbers |
//! | `simulate`, `args`, `text`, `csv` | the command `simulate`, values of flags, and the outputs |

mod accuracy;
pub mod architectures;
mod args;
mod balancer;
mod chart;
mod cli;
mod clients;
pub mod contention;
mod csv;
pub mod exact;
pub mod faults;
mod figure;
mod fleet;
mod keys;
pub mod meter;
mod network;
mod node;
mod node_clock;
mod owned_delta;
mod pacing;
mod queue;
mod random;
mod record;
mod remote_store;
mod report;
mod scenario;
mod server;
mod simulate;
mod standard;
mod text;
mod timeline;
mod warm_up;
mod window_count;

use std::{
    env,
    io::{self, Write},
    process::ExitCode,
};

pub use self::{
    balancer::Balancing,
    clients::Arrivals,
    faults::{Faults, Span},
    fleet::run as simulate,
    keys::KeyChoice,
    network::Link,
    record::{Call, Outcome},
    report::{Report, Served},
    scenario::Scenario,
    standard::{NAMES, scenario},
};

/// Runs the program with the arguments of this process.
pub fn run() -> ExitCode {
    let Err(sentence) = cli::run(env::args_os()) else {
        return ExitCode::SUCCESS;
    };
    // If standard error is closed, there is nowhere to report it.
    let _ = writeln!(io::stderr(), "figures: {sentence}");
    ExitCode::from(2)
}
