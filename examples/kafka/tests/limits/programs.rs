//! The programs, as a user runs them: two servers, and two aggregators of which one is killed.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Child, Command, Stdio},
    time::Duration,
};

use tokio::time::Instant;

use crate::cluster::{Cluster, SOON, keys_by_partition, state_key, until};

/// A process, killed when it is dropped, and the rest of its output.
struct Program(Child, Option<Box<dyn Iterator<Item = String>>>);

impl Program {
    /// Starts a program. Returns what follows in its line that begins so.
    fn start(path: &str, cluster: &Cluster, more: &[&str], line: &str) -> (Self, String) {
        let settings = &cluster.settings;
        let mut command = Command::new(path);
        command
            .args(["--brokers", &settings.brokers, "--topic", &settings.topic])
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let mut program = Self(command.spawn().unwrap(), None);
        let output = BufReader::new(program.0.stdout.take().unwrap());
        let mut lines = output.lines().map_while(Result::ok);
        let found = lines.find_map(|text| text.strip_prefix(line).map(str::to_owned));
        program.1 = Some(Box::new(lines));
        (program, found.expect("it starts"))
    }

    fn aggregator(cluster: &Cluster) -> Self {
        Self::start(env!("CARGO_BIN_EXE_aggregator"), cluster, &[], "adding up ").0
    }

    fn node(cluster: &Cluster) -> (Self, String) {
        let more = [
            "--listen",
            "127.0.0.1:0",
            "--rule",
            "sliding-window 100/1d slices=4",
        ];
        Self::start(
            env!("CARGO_BIN_EXE_node"),
            cluster,
            &more,
            "listening on http://",
        )
    }

    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns head and body of an answer.
fn get(address: &str, path: &str, client: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    let request = format!(
        "GET {path} HTTP/1.1\r\nhost: {address}\r\nx-api-key: {client}\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn is_admitted(address: &str, client: &str) -> bool {
    let answer = get(address, "/", client);
    match answer.split(' ').nth(1) {
        Some("200") => true,
        Some("429") => false,
        _ => panic!("{answer}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_share_a_limit_also_after_an_aggregator_was_killed() {
    let cluster = Cluster::start().await;
    let watch = cluster.store(1).await;
    let first = Program::aggregator(&cluster);
    let fresh = Duration::from_millis(1500);
    until("an aggregator", || match watch.staleness() {
        Some(age) if age < fresh => Ok(()),
        age => Err(format!("{age:?}")),
    })
    .await;
    let [(one, a), (two, b)] = [Program::node(&cluster), Program::node(&cluster)];
    // Both spend it together, and each refuses then.
    let admitted = |client: &str| {
        let mut admitted = 0;
        for n in 0..400 {
            let address = if n % 2 == 0 { &a } else { &b };
            admitted += u32::from(is_admitted(address, client));
        }
        admitted
    };
    let together = admitted("alice");
    // Two that hear nothing of each other admit 200. Each has at most 5 unsynced, beside what is in
    // flight.
    assert!((100..190).contains(&together), "{together}");
    until("a refusal of both", || {
        let refused = [&a, &b].map(|address| !is_admitted(address, "alice"));
        (refused == [true; 2])
            .then_some(())
            .ok_or(format!("{refused:?}"))
    })
    .await;
    let metrics = get(&a, "/metrics", "");
    for metric in [
        r#"tollgate_kafka_staleness_nanoseconds{store="limits",partition="0"}"#,
        r#"tollgate_sync_admitted_total{store="limits"}"#,
    ] {
        assert!(metrics.contains(metric), "no {metric} in\n{metrics}");
    }

    let second = Program::aggregator(&cluster);
    second.kill();
    let keys: Vec<_> = keys_by_partition(1).concat();
    let age = |key: &String| watch.staleness_of(&state_key(key)).unwrap_or_default();
    let (old, young) = until("partitions of the dead one", || {
        let (old, young): (Vec<_>, Vec<_>) = keys.iter().partition(|key| age(key) > fresh);
        match !old.is_empty() && !young.is_empty() {
            true => Ok((old.len(), young.len())),
            false => Err(format!("{old:?}, {young:?}")),
        }
    })
    .await;
    assert_eq!(old + young, 3);
    // The session of the dead one ends, and the first one has all.
    let start = Instant::now();
    until("fresh totals", || match watch.staleness() {
        Some(age) if age < fresh => Ok(()),
        age => Err(format!("{age:?} after {:?}", start.elapsed())),
    })
    .await;
    let together = admitted("bob");
    assert!((100..190).contains(&together), "{together}");
    drop((first, one, two));
}
