//! Exactly the limit is admitted: by eight processes of eight tasks each, on one key.

use std::{
    env,
    process::{Command, Stdio},
    time::Duration,
};

use tollgate::{
    FixedWindow, TokenBucket,
    key::Key,
    store::driver::{CasStore, CasStoreBuilder, CounterStore},
};
use tollgate_dynamodb::Dynamo;

use crate::common::{Dynalite, admitted, at_once, connect, dynamo};

const LIMIT: u64 = 100;
const PROCESSES: usize = 8;
const TASKS: usize = 8;
/// Calls of each task: more than the limit together.
const CALLS: u64 = 3;

fn by_swaps(dynamo: Dynamo) -> CasStore<Dynamo, TokenBucket> {
    CasStoreBuilder::new(dynamo)
        .deadline(Duration::from_secs(60))
        .build()
}

/// Does nothing, except in a process that the test below starts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn process() {
    let Ok(url) = env::var("DYNAMO_URL") else {
        return;
    };
    let window: FixedWindow = format!("fixed-window {LIMIT}/1d").parse().unwrap();
    let (swaps, counters) = (by_swaps(connect(&url)), CounterStore::new(connect(&url)));
    let tasks = (0..TASKS).map(|_| {
        let (swaps, counters) = (swaps.clone(), counters.clone());
        tokio::spawn(async move {
            [
                admitted(&swaps, &at_once(LIMIT), Key::from(7_u64), CALLS).await,
                admitted(&counters, &window, Key::from(8_u64), CALLS).await,
            ]
        })
    });
    let mut sums = [0, 0];
    for task in tasks.collect::<Vec<_>>() {
        let passed = task.await.unwrap();
        sums = [sums[0] + passed[0], sums[1] + passed[1]];
    }
    println!("\nadmitted {} {}", sums[0], sums[1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_together_admit_the_limit() {
    let server = Dynalite::start();
    dynamo(&server).await;
    let start = || {
        Command::new(env::current_exe().unwrap())
            .args(["exact::process", "--exact", "--nocapture"])
            .env("DYNAMO_URL", server.url())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let processes: Vec<_> = (0..PROCESSES).map(|_| start()).collect();
    let mut sums = [0, 0];
    for process in processes {
        let output = process.wait_with_output().unwrap();
        assert!(output.status.success());
        let text = String::from_utf8(output.stdout).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("admitted "));
        let numbers = line.unwrap_or_else(|| panic!("{text}")).split(' ');
        for (sum, number) in sums.iter_mut().zip(numbers) {
            *sum += number.parse::<u64>().unwrap();
        }
    }
    assert_eq!(sums, [LIMIT, LIMIT]);
}
