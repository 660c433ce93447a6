//! An axum server with two limits, whose metrics Prometheus scrapes from `/metrics`.
//!
//! ```text
//! cargo run
//! curl -H 'x-api-key: alice' 127.0.0.1:3000
//! curl 127.0.0.1:3000/metrics
//! ```

use std::{env, error::Error, process::ExitCode, time::Duration};

use axum::{Router, http::header::CONTENT_TYPE, routing::get};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use tokio::net::TcpListener;
use tollgate::{
    AnyRule,
    key::Global,
    observe::{Metrics, Publish},
    prelude::*,
};

const HELP: &str = "\
An axum server with two limits, and their metrics at /metrics.

Usage: cargo run -- [FLAG VALUE]...

  --client RULE  how much each client may do, by the header x-api-key  [token-bucket 10/1s burst=20]
  --total RULE   how much all clients may do together                  [token-bucket 100/1s]
  --listen ADDR  address and port, 0 for a free one                    [127.0.0.1:3000]
  --help         shows this
";

/// Returns the server's routes.
fn app(client: AnyRule, total: AnyRule) -> Result<Router, Box<dyn Error>> {
    // The recorder first: metrics that are registered before it are lost.
    let prometheus = PrometheusBuilder::new()
        .set_buckets_for_metric(
            Matcher::Full("tollgate_delay_seconds".to_owned()),
            &[0.01, 0.1, 1.0, 10.0],
        )?
        .install_recorder()?;
    // Adds up the samples of histograms, which otherwise accumulate until a scrape.
    let upkeep = prometheus.clone();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_secs(5)).await;
            upkeep.run_upkeep();
        }
    });
    Metrics::describe();

    let store = Local::new();
    let layer = RateLimitLayer::try_new(client)?
        .named("client")
        .key(Header::new("x-api-key").exempt_paths(["/health"]))
        .try_also(
            Limit::try_new(total)?
                .named("total")
                .key(Global.exempt_paths(["/health"])),
        )?
        .try_store(store.clone())?
        .observe(Metrics::new());

    let metrics = {
        let layer = layer.clone();
        async move || {
            // The counts of the store and the layer, as of now.
            store.publish("memory");
            layer.publish("api");
            let text = "text/plain; version=0.0.4";
            ([(CONTENT_TYPE, text)], prometheus.render())
        }
    };
    Ok(Router::new()
        .route("/", get(async || "hello\n"))
        .route("/health", get(async || "ok\n"))
        .layer(layer)
        // Not behind the limits.
        .route("/metrics", get(metrics)))
}

/// Reads the arguments and serves.
async fn serve(mut args: impl Iterator<Item = String>) -> Result<(), Box<dyn Error>> {
    let mut client = "token-bucket 10/1s burst=20".to_owned();
    let mut total = "token-bucket 100/1s".to_owned();
    let mut listen = "127.0.0.1:3000".to_owned();
    while let Some(flag) = args.next() {
        if flag == "--help" {
            print!("{HELP}");
            return Ok(());
        }
        let value = args.next();
        let value = value.ok_or(format!("{flag}: expected a value; see --help"))?;
        match &flag[..] {
            "--client" => client = value,
            "--total" => total = value,
            "--listen" => listen = value,
            _ => return Err(format!("unknown flag {flag}; see --help").into()),
        }
    }
    let client = client
        .parse()
        .map_err(|error| format!("--client: {error}"))?;
    let total = total.parse().map_err(|error| format!("--total: {error}"))?;
    let app = app(client, total)?;
    let listener = TcpListener::bind(&listen).await;
    let listener = listener.map_err(|error| format!("--listen {listen}: {error}"))?;
    println!("listening on {}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}

#[tokio::main]
async fn main() -> ExitCode {
    match serve(env::args().skip(1)).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
