//! The commands of the program.

use std::{
    ffi::OsString,
    io::{self, ErrorKind, Write},
};

use clap::{Parser, Subcommand, error::ErrorKind as Wrong};

use crate::{
    figure::{Bar, Common, Drawn, Figure, Folder, in_parallel},
    simulate::Simulate,
};

/// Draws the figures of the literature with the rules of tollgate, and simulates fleets of nodes.
///
/// Equal arguments give equal bytes.
#[derive(Parser)]
#[command(name = "figures", max_term_width = 120)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Writes the CSV and SVG of every figure
    All(Common),
    #[command(flatten)]
    Figure(Drawn),
    /// Simulates a fleet of nodes that share a limit by leases
    ///
    /// TIME is as in 100ms, SPAN as in 2s..5s, PART as in 0.05.
    Simulate(Box<Simulate>),
}

/// Runs a command. Returns one line that says what was wrong, if something was.
pub(crate) fn run(arguments: impl IntoIterator<Item = OsString>) -> Result<(), String> {
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) if error.kind() == Wrong::DisplayHelp => {
            return print(&error.to_string());
        }
        Err(error) if error.kind() == Wrong::DisplayHelpOnMissingArgumentOrSubcommand => {
            return Err(
                "a command is missing: expected `all`, the name of a figure, or `simulate`; `--help` shows them".to_owned(),
            );
        }
        Err(error) => return Err(one_line(&error)),
    };
    match cli.command {
        Command::All(common) => draw(common, &Drawn::all()),
        Command::Figure(drawn) => {
            let (common, figure) = drawn.open();
            draw(common, &[figure])
        }
        Command::Simulate(simulate) => print(&simulate.output()?),
    }
}

/// Makes figures on all cores, and writes the files of each as soon as they are complete.
fn draw(common: Common, figures: &[Box<dyn Figure>]) -> Result<(), String> {
    let folder = Folder::open(common.out)?;
    let bar = Bar::start(figures.len());
    let drawn = in_parallel(figures, |figure| {
        let progress = bar.figure(figure.name());
        folder.write(&figure.make(common.seed, &progress)?)?;
        progress.finish();
        Ok(())
    });
    drawn.map(drop)
}

fn print(text: &str) -> Result<(), String> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(format!("standard output cannot be written: {error}"))
        }
        _ => Ok(()),
    }
}

/// Returns the sentences of an error without the usage, which `--help` shows.
fn one_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let lines = text.lines().map(str::trim);
    let lines = lines.take_while(|line| !line.starts_with("Usage:"));
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with("For more information"));
    let sentence = lines.collect::<Vec<_>>().join(" ");
    let sentence = sentence.strip_prefix("error: ").unwrap_or(&sentence);
    format!("{sentence}; `--help` shows the commands and flags")
}
