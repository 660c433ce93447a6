//! An aggregator, of which one or several must run.

use std::{error::Error, process::ExitCode, time::Duration};

use tollgate_kafka::{Aggregator, Settings};

use shared::{Flags, interrupted, run};

mod shared;

const HELP: &str = "\
Adds up what nodes have produced. Several of them divide the partitions.

Usage: aggregator [FLAG VALUE]...

  --brokers HOST:PORT  [127.0.0.1:9092]
  --topic NAME         of the deltas; that of totals has `.totals` behind it  [limits]
  --partitions N       of each topic that is not there yet                    [12]
  --copies N           of each topic that is not there yet                    [1]
  --session MS         after which others take over from a dead aggregator    [6000]
  --help               shows this
";

async fn add_up(flags: Flags) -> Result<(), Box<dyn Error>> {
    let mut settings = Settings::new(flags.text("--brokers"), flags.text("--topic"));
    settings.session = Duration::from_millis(flags.get("--session")?);
    let (partitions, copies) = (flags.get("--partitions")?, flags.get("--copies")?);
    settings.create_topics(partitions, copies).await?;
    let mut aggregator = Aggregator::start(settings).await?;
    let counters = aggregator.counters();
    let said = counters.clone();
    let say = tokio::spawn(async move {
        let mut last = 0;
        loop {
            let partitions = said.partitions();
            if partitions != last {
                println!("adding up {partitions} partitions");
                last = partitions;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    let ended = aggregator.run_until(interrupted()).await;
    say.abort();
    ended?;
    let (taken_in, failed) = (counters.taken_in(), counters.failed());
    println!("stopped; {taken_in} changes taken in, {failed} failures");
    Ok(())
}

#[tokio::main]
async fn main() -> ExitCode {
    let defaults = [
        ("--brokers", "127.0.0.1:9092"),
        ("--topic", "limits"),
        ("--partitions", "12"),
        ("--copies", "1"),
        ("--session", "6000"),
    ];
    run(HELP, &defaults, add_up).await
}
