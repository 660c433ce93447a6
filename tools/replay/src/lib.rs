//! Shows what a rule would have done to recorded traffic: CSV with a line for each call, or access
//! logs.
//!
//! ```text
//! cd tools/replay
//! cargo run --release -- --rule "token-bucket 10/1m burst=20" <calls.csv >answers.csv
//! cargo run --release -- --rule "token-bucket 10/1m" --format combined access.log
//! cargo run --release -- --config limits.toml access.log
//! cargo run --release -- --rule "token-bucket 10/1m" --compare "fixed-window 10/1m" --format combined access.log
//! ```
//!
//! | module | contents |
//! |---|---|
//! | `engine` | decides call by call |
//! | `calls` | reads CSV, and answers each line with a line |
//! | `logs`, `access_log`, `request` | read access logs, and report at the end |
//! | `files` | the same, under a file of limits, by the layer itself |
//! | `comparison` | decides each request under two rules, and counts where they differ |
//! | `plot`, `axis`, `timeline` | draw requests over time |

mod access_log;
mod args;
mod axis;
pub mod calendar;
mod calls;
pub mod comparison;
pub mod engine;
mod files;
mod input;
mod logs;
pub mod numbers;
mod plot;
mod report;
mod request;
mod tally;
mod timeline;

use std::{
    env,
    io::{self, ErrorKind, Write},
    process::ExitCode,
};

use crate::{
    args::{Command, Format},
    input::complain,
};

/// The reason to stop early.
enum Stop {
    /// The reader closed the output, as in `… | head`.
    Enough,
    /// An error, as a sentence.
    Because(String),
}

/// Runs the program with the arguments of this process.
pub fn run() -> ExitCode {
    let result = match Command::parse(env::args_os().skip(1)) {
        Ok(Command::Help) => io::stdout()
            .write_all(args::HELP.as_bytes())
            .map(|()| true)
            .map_err(Stop::writing),
        Ok(Command::Files(args)) => files::run(args),
        Ok(Command::Replay(args)) => match args.format.clone() {
            Format::Csv => calls::run(*args),
            Format::Combined { key, top } => logs::run(*args, *key, top),
        },
        Err(sentence) => {
            complain(&format!("replay: {sentence}\n"));
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(true) | Err(Stop::Enough) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(Stop::Because(sentence)) => {
            complain(&format!("replay: {sentence}\n"));
            ExitCode::FAILURE
        }
    }
}

impl Stop {
    fn writing(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::BrokenPipe => Self::Enough,
            _ => Self::Because(format!("cannot write the output: {error}")),
        }
    }
}

impl From<String> for Stop {
    fn from(sentence: String) -> Self {
        Self::Because(sentence)
    }
}
