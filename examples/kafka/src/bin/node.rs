//! An axum server whose limit is shared through Kafka.

use std::{error::Error, net::SocketAddr, process::ExitCode, time::Duration};

use axum::{Router, http::header::CONTENT_TYPE, routing::get};
use metrics_exporter_prometheus::{BuildError, PrometheusBuilder, PrometheusHandle};
use tokio::{net::TcpListener, sync::oneshot};
use tollgate::{
    AnyRule,
    observe::{Metrics, Publish},
    prelude::*,
    store::SyncConfig,
};
use tollgate_kafka::{Kafka, Settings};

use shared::{Flags, interrupted, run};

mod shared;

const HELP: &str = "\
An axum server whose limit is shared with other nodes through Kafka.

Usage: node [FLAG VALUE]...

  --brokers HOST:PORT  [127.0.0.1:9092]
  --topic NAME         of the deltas; that of totals has `.totals` behind it  [limits]
  --listen ADDR        address and port, 0 for a free one                     [127.0.0.1:3000]
  --rule RULE          per value of the header x-api-key                      [sliding-window 100/1m slices=4]
  --nodes N            how many nodes share the limit                         [2]
  --period MS          between two deltas of a key, in milliseconds           [50]
  --overshoot PERCENT  how much nodes may have unsynced, all together         [5]
  --help               shows this

An aggregator must run and have created the topics. Metrics are at /metrics.
";

/// The longest time that requests, and then the last deltas, may take after a signal.
const AT_THE_END: Duration = Duration::from_secs(5);

async fn serve(flags: Flags) -> Result<(), Box<dyn Error>> {
    // The recorder first: metrics that are registered before it are lost.
    let prometheus = recorder()?;

    let settings = Settings::new(flags.text("--brokers"), flags.text("--topic"));
    // Each start of a node needs a number of its own.
    let kafka = Kafka::connect(settings, random()).await?;
    let config = SyncConfig::new()
        .period(Duration::from_millis(flags.get("--period")?))
        .overshoot_percent(flags.get("--overshoot")?)
        .nodes(flags.get("--nodes")?);
    let synced = kafka.clone().synced(config);
    let layer = RateLimitLayer::try_new(flags.get::<AnyRule>("--rule")?)?
        .named("api")
        .key(Header::new("x-api-key"))
        .try_store(synced.clone().fail_open())?
        .observe(Metrics::new());

    let metrics = {
        let synced = synced.clone();
        async move || {
            // The counters of the store, and the staleness of the totals, as of now.
            synced.publish("limits");
            let text = "text/plain; version=0.0.4";
            ([(CONTENT_TYPE, text)], prometheus.render())
        }
    };
    let app = Router::new()
        .route("/", get(async || "hello\n"))
        .layer(layer)
        // Not behind the limit.
        .route("/metrics", get(metrics));

    let listen: SocketAddr = flags.get("--listen")?;
    let listener = TcpListener::bind(listen).await;
    let listener = listener.map_err(|error| format!("--listen {listen}: {error}"))?;
    println!("listening on http://{}", listener.local_addr()?);
    let (stop, stopped) = oneshot::channel::<()>();
    let server = axum::serve(listener, app).with_graceful_shutdown(async {
        let _ = stopped.await;
    });
    let mut server = std::pin::pin!(server.into_future());
    tokio::select! {
        ended = &mut server => return Ok(ended?),
        () = interrupted() => drop(stop),
    }
    let _ = tokio::time::timeout(AT_THE_END, server).await;
    let lost = synced.flush(AT_THE_END).await;
    println!("stopped; {lost} units were not pushed to the other nodes");
    Ok(())
}

/// Installs the recorder of metrics, with its upkeep.
fn recorder() -> Result<PrometheusHandle, BuildError> {
    let prometheus = PrometheusBuilder::new().install_recorder()?;
    // Adds up the samples of histograms, which otherwise accumulate until a scrape.
    let upkeep = prometheus.clone();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_secs(5)).await;
            upkeep.run_upkeep();
        }
    });
    Metrics::describe();
    Ok(prometheus)
}

/// Returns a number that no other start of a node has.
fn random() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    // Of 53 bits, as for `Batch::node`.
    RandomState::new().hash_one(std::process::id()) >> 11
}

#[tokio::main]
async fn main() -> ExitCode {
    let defaults = [
        ("--brokers", "127.0.0.1:9092"),
        ("--topic", "limits"),
        ("--listen", "127.0.0.1:3000"),
        ("--rule", "sliding-window 100/1m slices=4"),
        ("--nodes", "2"),
        ("--period", "50"),
        ("--overshoot", "5"),
    ];
    run(HELP, &defaults, serve).await
}
