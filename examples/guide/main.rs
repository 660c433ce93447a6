//! Recipes for common tasks: each module has the code to copy between two markers, and its tests.
//!
//! ```text
//! cargo run --all-features --example guide             # lists the recipes
//! cargo run --all-features --example guide -- plans    # prints the code of one
//! cargo test --all-features --example guide            # tests all
//! ```
//!
//! The page `src/recipes.md` shows the same code. `tests/laws.rs` compares the two.
#![cfg_attr(not(test), allow(dead_code, reason = "the tests call the recipes"))]

mod bearer_token;
mod body_size;
mod budget;
mod candidate;
#[cfg(test)]
mod client;
mod database_key;
mod dry_run;
mod failed_logins;
mod failed_logins_form;
mod grpc_methods;
mod important_calls;
mod in_flight;
mod leased_fleet;
mod live_rule;
mod llm_tokens;
mod manual_clock;
mod outgoing_calls;
mod plans;
mod prometheus;
mod routes;
mod shared_pace;
mod synced_fleet;
mod websocket;

use std::{env, process::ExitCode};

/// Reads the sources of the modules.
macro_rules! recipes {
    ($($name:ident),* $(,)?) => {
        &[$((stringify!($name), include_str!(concat!(stringify!($name), ".rs")))),*]
    };
}

/// The names and sources, in the order of the page.
const RECIPES: &[(&str, &str)] = recipes![
    plans,
    important_calls,
    body_size,
    routes,
    grpc_methods,
    database_key,
    bearer_token,
    live_rule,
    leased_fleet,
    synced_fleet,
    failed_logins,
    failed_logins_form,
    llm_tokens,
    dry_run,
    candidate,
    in_flight,
    budget,
    websocket,
    prometheus,
    manual_clock,
    outgoing_calls,
    shared_pace,
];

fn main() -> ExitCode {
    let Some(wanted) = env::args().nth(1) else {
        for (name, source) in RECIPES {
            let task = source.lines().next().unwrap_or_default();
            println!("{name:20}{}", task.trim_start_matches("//! "));
        }
        return ExitCode::SUCCESS;
    };
    let Some((_, source)) = RECIPES.iter().find(|(name, _)| *name == wanted) else {
        eprintln!("no recipe `{wanted}`; without an argument, this program lists all");
        return ExitCode::FAILURE;
    };
    let code = source.lines().skip_while(|line| *line != BEGIN).skip(1);
    for line in code.take_while(|line| *line != END) {
        println!("{line}");
    }
    ExitCode::SUCCESS
}

/// The lines around the code to copy.
const BEGIN: &str = "// Copy from here.";
const END: &str = "// Copy to here.";
