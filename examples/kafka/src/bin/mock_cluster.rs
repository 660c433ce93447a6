//! A cluster in memory, to try the example without Kafka.

use std::{error::Error, process::ExitCode};

use rdkafka::mocking::MockCluster;
use shared::{Flags, interrupted, run};

mod shared;

const HELP: &str = "\
A mock cluster of librdkafka on a free port of the loopback, to try the example. It keeps everything in memory.

Usage: mock_cluster [FLAG VALUE]...

  --topic NAME    of the deltas; that of totals has `.totals` behind it  [limits]
  --partitions N  of each topic                                          [12]
  --help          shows this
";

async fn serve(flags: Flags) -> Result<(), Box<dyn Error>> {
    let cluster = MockCluster::new(1)?;
    let topic = flags.text("--topic");
    // It cannot create topics for clients.
    for name in [topic, &format!("{topic}.totals")] {
        cluster.create_topic(name, flags.get("--partitions")?, 1)?;
    }
    println!("--brokers {}", cluster.bootstrap_servers());
    interrupted().await;
    Ok(())
}

#[tokio::main]
async fn main() -> ExitCode {
    let defaults = [("--topic", "limits"), ("--partitions", "12")];
    run(HELP, &defaults, serve).await
}
