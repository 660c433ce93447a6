//! An axum server with its limit in etcd. Run it twice, on two ports: both share the limit.
//!
//! ```text
//! etcd --data-dir /tmp/limits.etcd --auto-compaction-mode=periodic --auto-compaction-retention=5m &
//! cargo run -- --etcd http://127.0.0.1:2379
//! ```

use std::{env, error::Error, net::SocketAddr, process::ExitCode, time::Duration};

use axum::{Router, routing::get};
use etcd_client::ConnectOptions;
use tokio::net::TcpListener;
use tollgate::{AnyRule, prelude::*, store::driver::CasStore};
use tollgate_etcd::Etcd;

const HELP: &str = "\
An axum server whose limit lies in etcd.

Usage: cargo run -- [FLAG VALUE]...

  --etcd URL     a member of the cluster, once for each  [http://127.0.0.1:2379]
  --rule RULE    how much each client address may do     [token-bucket 5/10s burst=5]
  --listen ADDR  address and port, 0 for a free one      [127.0.0.1:3000]
  --help         shows this
";

#[derive(Debug)]
struct Args {
    members: Vec<String>,
    rule: AnyRule,
    listen: SocketAddr,
}

impl Args {
    /// Reads the arguments after the program's name. Returns `None` if help is requested.
    fn parse(mut args: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let mut members = Vec::new();
        let mut rule = "token-bucket 5/10s burst=5".to_owned();
        let mut listen = "127.0.0.1:3000".to_owned();
        while let Some(flag) = args.next() {
            if flag == "--help" {
                return Ok(None);
            }
            let value = args
                .next()
                .ok_or(format!("{flag}: expected a value; see --help"))?;
            match &flag[..] {
                "--etcd" => members.push(value),
                "--rule" => rule = value,
                "--listen" => listen = value,
                _ => return Err(format!("unknown flag {flag}; see --help")),
            }
        }
        if members.is_empty() {
            members.push("http://127.0.0.1:2379".to_owned());
        }
        Ok(Some(Self {
            members,
            rule: rule.parse().map_err(|error| format!("--rule: {error}"))?,
            listen: listen.parse().map_err(|_| {
                format!(
                    "--listen: expected an address and a port as 127.0.0.1:3000, found {listen}"
                )
            })?,
        }))
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let result = match Args::parse(env::args().skip(1)) {
        Ok(Some(args)) => serve(args).await,
        Ok(None) => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(sentence) => {
            eprintln!("{sentence}");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve(args: Args) -> Result<(), Box<dyn Error>> {
    let Args {
        members,
        rule,
        listen,
    } = args;
    let etcd = Etcd::connect(&members, ConnectOptions::new()).await?;
    // Caps the wait for a decision. Requests that etcd cannot decide about get a 503.
    let store = CasStore::new(etcd)
        .timeout(Duration::from_millis(500))
        .fail_closed();
    let limit = RateLimitLayer::new(rule.clone())
        .named("api")
        .key(PeerIp::new())
        .store(store);
    let app = Router::new()
        .route("/", get(async || "hello\n"))
        .layer(limit);

    let listener = TcpListener::bind(listen).await.map_err(|error| {
        format!("cannot listen on {listen}: {error}; choose another address with --listen")
    })?;
    let address = listener.local_addr()?;
    println!(
        "listening on http://{address}: {rule} for each client address, in {}; try\n",
        members.join(", ")
    );
    println!("  curl -i http://{address}/");
    println!(
        "  for i in 1 2 3 4 5 6 7; do curl -s -o /dev/null -w '%{{http_code}} ' http://{address}/; done"
    );
    println!("  etcdctl get --prefix tollgate: --keys-only\n");
    // Without the connect info the limit has no client address.
    axum::serve(
        listener,
        app.into_make_service_with_connect_info::<SocketAddr>(),
    )
    .await?;
    Ok(())
}
