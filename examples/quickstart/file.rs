//! Limits and routes from a file: `--config` and `--check`.

use std::{error::Error, fs, process::ExitCode, sync::Arc, time::Duration};

use axum::Router;
use tollgate::{config::RouteLimits, respond::Http};

use crate::{flags::Args, routes, store::AnyStore};

type Limits = RouteLimits<axum::body::Body, AnyStore>;

/// The exit status of a file that has only warnings.
const WARNED: u8 = 3;

/// Puts the routes behind the limits of a file, which is followed from now on.
///
/// # Errors
///
/// Returns an error if the file cannot be read, or has mistakes.
pub(crate) fn app(args: &Args, file: &str, store: AnyStore) -> Result<Router, Box<dyn Error>> {
    let builder = RouteLimits::builder()
        .store(store)
        .respond(Http::new().headers(args.headers));
    let limits = builder
        .build(&read(file)?)
        .map_err(|problems| described(file, problems.iter()))?;
    let loaded = limits.file();
    if !loaded.warnings().is_empty() {
        eprintln!("{}", described(file, loaded.warnings().iter()));
    }
    limits.watch(file)?;
    tokio::spawn(report(file.to_owned(), limits.clone()));
    Ok(routes::all().layer(limits))
}

/// Shows the mistakes and warnings of a file, and returns the status to exit with.
pub(crate) fn check(file: &str, store: AnyStore) -> Result<ExitCode, Box<dyn Error>> {
    let text = read(file)?;
    let limits = RouteLimits::<axum::body::Body>::builder().store(store);
    let limits: Limits = match limits.build(&text) {
        Ok(limits) => limits,
        Err(problems) => {
            println!("{}", described(file, problems.iter()));
            return Ok(ExitCode::FAILURE);
        }
    };
    let loaded = limits.file();
    if loaded.warnings().is_empty() {
        println!("{file}: no mistakes, and nothing to warn of");
        return Ok(ExitCode::SUCCESS);
    }
    println!("{}", described(file, loaded.warnings().iter()));
    Ok(ExitCode::from(WARNED))
}

fn read(file: &str) -> Result<String, String> {
    fs::read_to_string(file).map_err(|error| {
        format!("{file}: {error}; expected a file of limits, as in --config limits.toml")
    })
}

fn described<'a>(
    file: &str,
    problems: impl Iterator<Item = impl std::fmt::Display + 'a>,
) -> String {
    let lines: Vec<_> = problems
        .map(|problem| format!("{file}:{problem}"))
        .collect();
    lines.join("\n")
}

/// Prints what each change of the file changes.
async fn report<R: Send + Sync + 'static>(
    file: String,
    limits: RouteLimits<axum::body::Body, AnyStore, R>,
) {
    let mut last = limits.file();
    let mut failed = 0;
    loop {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let now = limits.file();
        if !Arc::ptr_eq(&last, &now) {
            println!(
                "{}",
                described(
                    &file,
                    last.changes_to(&now)
                        .iter()
                        .map(|change| format!(" {change}"))
                )
            );
            last = now;
        }
        let reloads = limits.reloads();
        if reloads.failed > failed {
            failed = reloads.failed;
            println!(
                "{file}: the limits stay as they are, because it has mistakes; --check {file} shows them"
            );
        }
    }
}
