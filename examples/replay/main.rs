//! What a rule would have done to yesterday's traffic: CSV with a line for each call, or access logs.
//!
//! ```text
//! cargo run --release --example replay -- --rule "token-bucket 10/1m burst=20" <calls.csv >answers.csv
//! cargo run --release --example replay -- --rule "token-bucket 10/1m" --format combined access.log
//! ```
//!
//! How a call is decided is in `engine/mod.rs`.

mod access_log;
mod args;
mod axis;
mod calendar;
mod calls;
mod engine;
mod input;
mod logs;
mod numbers;
mod plot;
mod report;
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

/// Why it stopped early.
enum Stop {
    /// Whoever read the output has seen enough, as in `… | head`.
    Enough,
    /// For a reason, in a sentence.
    Because(String),
}

fn main() -> ExitCode {
    let result = match Command::parse(env::args_os().skip(1)) {
        Ok(Command::Help) => io::stdout()
            .write_all(args::HELP.as_bytes())
            .map(|()| true)
            .map_err(Stop::writing),
        Ok(Command::Replay(args)) => match args.format {
            Format::Csv => calls::run(*args),
            Format::Combined { key, top } => logs::run(*args, key, top),
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
