//! A gRPC service and an HTTP page on one port, behind one limit.
//!
//! ```text
//! cargo run --features tonic --example tonic
//! cargo run --features tonic --example tonic -- --listen 127.0.0.1:50051 --rule "token-bucket 3/1m"
//! ```
//!
//! Without an address it calls itself, shows the refusal that each kind of client receives, and
//! ends.

mod greeter;

use std::{env, net::SocketAddr};

use axum::{Router, routing::get};
use tollgate::prelude::*;
use tonic::{
    Code,
    service::Routes,
    transport::{Server, server::TcpIncoming},
};
use tonic_types::StatusExt;

use crate::greeter::{Greeter, GreeterClient, GreeterServer};

type Error = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let Args { listen, rule } = Args::parse(env::args().skip(1))?;
    // One budget for both. The layer recognizes gRPC calls by their content type.
    let limit = RateLimitLayer::try_new(rule)?.key(PeerIp::new());
    let app: Router = Routes::new(GreeterServer(Greeter))
        .into_axum_router()
        .route("/", get(|| async { "hello, browser\n" }))
        .layer(limit);
    // A server with only gRPC needs no router:
    // `Server::builder().layer(limit.respond(Grpc::new())).add_service(…)`.
    let incoming = TcpIncoming::bind(listen.unwrap_or(([127, 0, 0, 1], 0).into()))?;
    let address = incoming.local_addr()?;
    let server = Server::builder().accept_http1(true).add_routes(app.into());
    if listen.is_some() {
        println!("listening on http://{address}");
        return Ok(server.serve_with_incoming(incoming).await?);
    }
    let server = tokio::spawn(server.serve_with_incoming(incoming));
    let result = call(address).await;
    server.abort();
    result
}

/// Calls the server until it refuses a call, over gRPC and over HTTP.
async fn call(address: SocketAddr) -> Result<(), Error> {
    let mut client = GreeterClient::connect(format!("http://{address}")).await?;
    for _ in 0..3 {
        println!("gRPC: {}", client.say_hello("world").await?.message);
    }
    let status = client
        .say_hello("world")
        .await
        .err()
        .ok_or("the fourth call was not refused")?;
    let retry = status
        .get_details_retry_info()
        .and_then(|info| info.retry_delay);
    println!(
        "gRPC: {:?}, {}; RetryInfo: {retry:?}",
        status.code(),
        status.message()
    );
    assert_eq!(status.code(), Code::ResourceExhausted);

    println!("\nHTTP: {}", get_page(&address.to_string()).await?);
    Ok(())
}

/// The settings of the server.
struct Args {
    /// `None` to call itself.
    listen: Option<SocketAddr>,
    rule: AnyRule,
}

impl Args {
    fn parse(mut args: impl Iterator<Item = String>) -> Result<Self, Error> {
        let mut settings = Self {
            listen: None,
            rule: TokenBucket::per_minute(3).into(),
        };
        while let Some(flag) = args.next() {
            match (flag.as_str(), args.next()) {
                ("--listen", Some(address)) => settings.listen = Some(address.parse()?),
                // The calls to itself need a rule that they know.
                ("--rule", Some(rule)) if settings.listen.is_some() => {
                    settings.rule = rule.parse()?
                }
                _ => return Err("expected no flags, or `--listen ADDRESS [--rule RULE]`".into()),
            }
        }
        Ok(settings)
    }
}

/// Returns the response to a plain HTTP/1.1 request, as it appears on the wire.
async fn get_page(address: &str) -> Result<String, Error> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    let mut stream = tokio::net::TcpStream::connect(address).await?;
    let request = format!("GET / HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}
