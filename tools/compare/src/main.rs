//! Runs rate limiters beside each other, and prints what each of them does as a Markdown table.

mod answer;
mod clients;
mod library;
mod probe;
mod runtime;
mod service;
mod table;
mod versions;

use std::{fs, path::PathBuf, process::ExitCode};

use clap::Parser;
use support::servers::Redis;

use crate::probe::{Crates, FloodReport, Surroundings};

/// Runs rate limiters beside each other, and prints what each of them does as a Markdown table.
#[derive(Parser)]
struct Arguments {
    /// Compares the table of a page with the run instead
    #[arg(long, value_name = "FILE", conflicts_with = "write")]
    check: Option<PathBuf>,
    /// Writes the table into a page, between its two markers
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Floods one library with clients, and prints the result for another process
    #[arg(long, value_name = "LIBRARY", hide = true)]
    flood: Option<String>,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("compare: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), String> {
    if let Some(name) = &arguments.flood {
        let library = library::ALL
            .into_iter()
            .find(|library| library.package() == name);
        let library = library.ok_or_else(|| format!("no library `{name}`"))?;
        println!("{}", FloodReport::measure(library));
        return Ok(());
    }
    // A page that has no place for the table fails before the run, which takes a minute.
    let (check, write) = (&arguments.check, &arguments.write);
    let page = check.as_ref().or(write.as_ref()).map(read).transpose()?;
    page.as_deref().map(table::split).transpose()?;
    let redis = Redis::start();
    let surroundings = Surroundings {
        redis: redis.url(),
        crates: Crates::new(),
    };
    let table = table::run(&surroundings);
    match (page, write) {
        (None, _) => print!("{table}"),
        (Some(page), None) => table::compare(&page, &table)?,
        (Some(page), Some(path)) => {
            let page = table::replace(&page, &table)?;
            fs::write(path, page).map_err(|error| format!("{}: {error}", path.display()))?;
        }
    }
    Ok(())
}

fn read(path: &PathBuf) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}
