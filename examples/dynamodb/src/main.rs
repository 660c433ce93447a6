//! An axum server with its limit in DynamoDB. Run it twice, on two ports: both share the limit.
//!
//! ```text
//! dynalite --host 127.0.0.1 --port 4567 &
//! cargo run -- --endpoint http://127.0.0.1:4567 --create
//! ```

use std::{env, error::Error, net::SocketAddr, process::ExitCode, time::Duration};

use axum::{Router, routing::get};
use tokio::net::TcpListener;
use tollgate::{AnyRule, prelude::*, store::driver::CasStore};
use tollgate_dynamodb::{Dynamo, Place};

const HELP: &str = "\
An axum server whose limit lies in DynamoDB.

Usage: cargo run -- [FLAG VALUE]...

  --endpoint URL  a server for tests, instead of AWS      [AWS, as the environment says]
  --table NAME    where the limits lie                    [limits]
  --create        creates the table if there is none
  --rule RULE     how much each client address may do     [token-bucket 5/10s burst=5]
  --listen ADDR   address and port, 0 for a free one      [127.0.0.1:3000]
  --help          shows this

For AWS, set AWS_REGION, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.
";

#[derive(Debug)]
struct Args {
    endpoint: Option<String>,
    table: String,
    creates: bool,
    rule: AnyRule,
    listen: SocketAddr,
}

impl Args {
    /// Reads the arguments after the program's name. Returns `None` if help is requested.
    fn parse(mut args: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let (mut endpoint, mut creates) = (None, false);
        let mut table = "limits".to_owned();
        let mut rule = "token-bucket 5/10s burst=5".to_owned();
        let mut listen = "127.0.0.1:3000".to_owned();
        while let Some(flag) = args.next() {
            match &flag[..] {
                "--help" => return Ok(None),
                "--create" => {
                    creates = true;
                    continue;
                }
                _ => {}
            }
            let value = args
                .next()
                .ok_or(format!("{flag}: expected a value; see --help"))?;
            match &flag[..] {
                "--endpoint" => endpoint = Some(value),
                "--table" => table = value,
                "--rule" => rule = value,
                "--listen" => listen = value,
                _ => return Err(format!("unknown flag {flag}; see --help")),
            }
        }
        Ok(Some(Self {
            endpoint,
            table,
            creates,
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
        rule,
        listen,
        table,
        ..
    } = args;
    let place = match &args.endpoint {
        Some(endpoint) => Place::local(endpoint),
        None => Place::from_environment()?,
    };
    let dynamo = Dynamo::connect(place, &table);
    let patient = dynamo.clone().response_timeout(Duration::from_secs(10));
    match args.creates {
        true => patient.create_table().await?,
        false => patient.check_table().await?,
    }
    // Caps the wait for a decision. Requests that DynamoDB cannot decide about get a 503.
    let store = CasStore::new(dynamo)
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
        "listening on http://{address}: {rule} for each client address, in the table {table}; try\n"
    );
    println!("  curl -i http://{address}/");
    println!(
        "  for i in 1 2 3 4 5 6 7; do curl -s -o /dev/null -w '%{{http_code}} ' http://{address}/; done"
    );
    // Without the connect info the limit has no client address.
    axum::serve(
        listener,
        app.into_make_service_with_connect_info::<SocketAddr>(),
    )
    .await?;
    Ok(())
}
