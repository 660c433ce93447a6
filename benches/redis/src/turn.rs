//! Many decisions at once, and what they cost.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use rustix::time::{ClockId, clock_gettime};
use support::Random;
use tokio::{runtime::Runtime, sync::Barrier};

use crate::contender::Decide;

/// The cost of a turn.
#[derive(Clone, Debug, Default)]
pub struct Cost {
    /// Nanoseconds of the wall for each decision.
    pub wall: f64,
    /// Nanoseconds of the server's processor for each decision.
    pub server: f64,
    /// Nanoseconds of this process' processors for each decision.
    pub client: f64,
    /// The latency of each decision.
    pub latencies: Vec<u32>,
}

/// The number of tasks, clients, and decisions in all.
#[derive(Clone, Copy)]
pub struct Load {
    pub tasks: usize,
    pub clients: usize,
    pub decisions: usize,
}

/// The processor time of this process.
pub fn client_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Lets all tasks decide about clients at random, each as soon as it has its answer.
///
/// # Panics
///
/// If a client is refused, or gets no answer.
pub fn turn(
    runtime: &Runtime,
    load: Load,
    seed: u64,
    who: &impl Decide,
    server_time: &dyn Fn() -> Duration,
) -> Cost {
    let each = load.decisions / load.tasks;
    let together = Arc::new(Barrier::new(load.tasks));
    let (server, client, begin) = (server_time(), client_time(), Instant::now());
    let tasks: Vec<_> = (0..load.tasks as u64)
        .map(|task| {
            let (who, together) = (who.clone(), Arc::clone(&together));
            let mut random = Random::new(seed << 32 | task);
            runtime.spawn(async move {
                let mut latencies = Vec::with_capacity(each);
                together.wait().await;
                for _ in 0..each {
                    let client = random.next_u64() as usize % load.clients;
                    let asked = Instant::now();
                    assert!(who.decide(client).await, "client {client} was refused");
                    latencies.push(asked.elapsed().as_nanos() as u32);
                }
                latencies
            })
        })
        .collect();
    let latencies = runtime.block_on(async {
        let mut all = Vec::with_capacity(load.decisions);
        for task in tasks {
            all.extend(task.await.expect("no panic"));
        }
        all
    });
    let wall = begin.elapsed();
    let (client, server) = (client_time() - client, server_time() - server);
    let per = |time: Duration| time.as_nanos() as f64 / latencies.len() as f64;
    Cost {
        wall: per(wall),
        server: per(server),
        client: per(client),
        latencies,
    }
}
