//! The programs of the guide: each module has the code to copy between two markers, and its tests.
//!
//! ```text
//! cargo run --all-features --example guide               # lists the programs
//! cargo run --all-features --example guide -- plans      # prints the code of one
//! cargo test --all-features --example guide              # tests all
//! cargo test --all-features --example guide -- plans::   # tests one
//! ```
//!
//! The pages in `src/guide` show the same code. `tests/laws.rs` compares the two.
#![cfg_attr(not(test), allow(dead_code, reason = "the tests call the programs"))]

mod answers;
mod bearer_token;
mod behind_a_proxy;
mod body_size;
mod budget;
mod candidate;
#[cfg(test)]
mod client;
mod closures;
mod database_key;
mod dry_run;
mod failed_logins;
mod failed_logins_form;
mod first_limit;
mod grpc_methods;
mod important_calls;
mod in_flight;
mod leased_fleet;
mod limits_from_a_file;
mod live_rule;
mod llm_tokens;
mod manual_clock;
mod outgoing_calls;
mod own_key;
mod pacer;
mod plans;
mod prometheus;
mod routes;
mod rule_from_text;
mod several_servers;
mod shared_pace;
mod synced_fleet;
mod websocket;
mod when_redis_fails;

use std::{env, process::ExitCode};

/// Reads the sources of the modules.
macro_rules! programs {
    ($($name:ident),* $(,)?) => {
        &[$((stringify!($name), include_str!(concat!(stringify!($name), ".rs")))),*]
    };
}

/// The names and sources, in the order of the pages.
const PROGRAMS: &[(&str, &str)] = programs![
    first_limit,
    routes,
    behind_a_proxy,
    plans,
    budget,
    important_calls,
    database_key,
    bearer_token,
    several_servers,
    when_redis_fails,
    body_size,
    failed_logins,
    failed_logins_form,
    llm_tokens,
    in_flight,
    grpc_methods,
    limits_from_a_file,
    live_rule,
    leased_fleet,
    synced_fleet,
    manual_clock,
    dry_run,
    candidate,
    own_key,
    pacer,
    shared_pace,
    websocket,
    outgoing_calls,
    prometheus,
    answers,
    rule_from_text,
    closures,
];

fn main() -> ExitCode {
    let Some(wanted) = env::args().nth(1) else {
        for (name, source) in PROGRAMS {
            let task = source.lines().next().unwrap_or_default();
            println!("{name:20}{}", task.trim_start_matches("//! "));
        }
        return ExitCode::SUCCESS;
    };
    let Some((_, source)) = PROGRAMS.iter().find(|(name, _)| *name == wanted) else {
        eprintln!("no program `{wanted}`; without an argument, this program lists all");
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
