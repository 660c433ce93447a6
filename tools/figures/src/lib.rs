//! Simulates a fleet of nodes that share limits: the real rules and the real leases, in simulated time.
//!
//! ```text
//! cd tools/figures
//! cargo run --release -- --scenario hot-8
//! cargo run --release -- --scenario hot-8 --nodes 100 --delay 5ms --loss 0.01 --csv
//! ```
//!
//! | module | contents |
//! |---|---|
//! | `scenario`, `standard` | what is simulated; scenarios with names |
//! | `timeline`, `node_clock` | simulated time; the clock of a node, with offset and drift |
//! | `clients`, `keys`, `balancer` | when calls come, for which key, and to which node |
//! | `node` | a node with the real leases |
//! | `network`, `remote_store`, `server` | the way to the store, the node's end of it, and the store |
//! | `faults` | outages, partitions, freezes and deaths |
//! | `fleet` | runs a scenario |
//! | `record`, `meter`, `exact`, `report` | what happened, the exact limit, an exact limiter, and the numbers |
//! | `args`, `text`, `csv` | the command line and the outputs |

mod args;
mod balancer;
mod clients;
mod csv;
pub mod exact;
pub mod faults;
mod fleet;
mod keys;
pub mod meter;
mod network;
mod node;
mod node_clock;
mod random;
mod record;
mod remote_store;
mod report;
mod scenario;
mod server;
mod standard;
mod text;
mod timeline;

use std::{
    env,
    io::{self, ErrorKind, Write},
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
    let arguments = env::args_os().skip(1);
    let result = args::Command::parse(arguments).and_then(|command| command.output());
    let output = match result {
        Ok(output) => output,
        Err(sentence) => {
            // There is nobody to tell that standard error is closed.
            let _ = writeln!(io::stderr(), "figures: {sentence}");
            return ExitCode::from(2);
        }
    };
    match io::stdout().write_all(output.as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    }
}
