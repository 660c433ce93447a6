//! Calls and time as the number of nodes that write the same key grows.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use support::{bench::Mode, servers::Memcached as Server};
use tokio::{runtime::Runtime, sync::Barrier};
use tollgate::{TokenBucket, store::Memcached};

use super::{
    MANY, connect, patient,
    turn::{admitted, operations},
};

const NODES: [usize; 8] = [1, 2, 5, 10, 20, 50, 100, 200];

/// The price of a node's only decision, on average of all: operations of the server, and time until
/// the last one was answered.
async fn meet(nodes: &[Memcached<TokenBucket>], key: u64) -> (f64, Duration) {
    let before: u64 = nodes.iter().map(|node| operations(&node.stats())).sum();
    let together = Arc::new(Barrier::new(nodes.len() + 1));
    let calls: Vec<_> = nodes
        .iter()
        .map(|node| {
            let (node, together) = (node.clone(), Arc::clone(&together));
            tokio::spawn(async move {
                together.wait().await;
                assert!(admitted(node, TokenBucket::per_day(MANY), key).await);
            })
        })
        .collect();
    // Some may have decided before this task runs again.
    let begin = Instant::now();
    together.wait().await;
    for call in calls {
        call.await.expect("no panic");
    }
    let took = begin.elapsed();
    let after: u64 = nodes.iter().map(|node| operations(&node.stats())).sum();
    ((after - before) as f64 / nodes.len() as f64, took)
}

/// Each node is a store of its own on a connection of its own, and decides once, at the same
/// instant as all others.
pub(crate) fn table(mode: &Mode, runtime: &Runtime, server: &Server) {
    let rounds = mode.pick(15, 1);
    println!(
        "\ncontenders: operations of the server per decision, and time until all have decided; median of {rounds} rounds\n"
    );
    println!("| nodes | operations, back-off | without | time, back-off | without |");
    println!("|---|---|---|---|---|");
    runtime.block_on(async {
        let mut connections = Vec::new();
        for count in NODES.into_iter().take(mode.pick(NODES.len(), 3)) {
            while connections.len() < count {
                connections.push(connect(server).await);
            }
            let ways = [false, true].map(|is_bare| -> Vec<Memcached<TokenBucket>> {
                let node = |connection| match patient(connection) {
                    bare if is_bare => bare.backoff(None).build(),
                    backing_off => backing_off.build(),
                };
                connections.iter().map(node).collect()
            });
            let mut seen = [Vec::new(), Vec::new()];
            for round in 0..rounds {
                for (nodes, seen) in ways.iter().zip(&mut seen) {
                    seen.push(meet(nodes, 1_000_000 + round as u64).await);
                }
            }
            let [backing_off, bare] = seen.map(|mut seen| {
                let middle = seen.len() / 2;
                seen.sort_by(|a, b| a.0.total_cmp(&b.0));
                let operations = seen[middle].0;
                seen.sort_by_key(|seen| seen.1);
                (operations, seen[middle].1.as_secs_f64() * 1e3)
            });
            println!(
                "| {count} | {:.1} | {:.1} | {:.2} ms | {:.2} ms |",
                backing_off.0, bare.0, backing_off.1, bare.1
            );
        }
    });
}
