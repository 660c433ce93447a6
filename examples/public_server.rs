//! An axum server that strangers reach: limits of connections, of requests in flight, and of rates,
//! for each client and for all.
//!
//! `cargo run --features axum,listen --example public_server`, then
//! `curl -i http://127.0.0.1:3000/`. Ctrl-C stops it, and prints what it closed.
//!
//! The page `src/public_servers.md` says which limit stops what, and which numbers to start from.

use std::{future::Future, io, net::SocketAddr, time::Duration};

use axum::{
    Router,
    body::Bytes,
    extract::DefaultBodyLimit,
    routing::{get, post},
};
use tokio::net::TcpListener;
use tollgate::{
    InFlight,
    listen::{ConnectionStats, Guarded},
    prelude::*,
};

/// A response takes no longer, so a silent connection waits for none.
const SLOWEST: Duration = Duration::from_secs(60);

/// A call counts for no longer, with a minute to read its response: a client of HTTP/2 that reads
/// nothing need not be silent.
const LONGEST: Duration = Duration::from_secs(120);

/// The limits of connections.
fn guarded(listener: TcpListener) -> Guarded<TcpListener> {
    Guarded::new(listener)
        // Each takes some 20 kB here, and a file handle.
        .at_most(900)
        // Browsers open six; an office or a mobile network may share an address.
        .per_client(64)
        .accept(TokenBucket::per_second(20).burst(100))
        .head_within(Duration::from_secs(10))
        .idle_for(SLOWEST + Duration::from_secs(10))
    // Behind a balancer: `.trusting(["10.0.0.0/8"])`, and `.proxy_protocol()` if it speaks it.
}

/// The limits of requests: of all clients together, and of one.
fn app() -> Result<Router, tollgate::Error> {
    // What the handlers can do at once, whoever asks.
    let all = InFlight::try_at_most(256)?.try_max_hold(LONGEST)?;
    let all = Limit::try_new(AnyRule::from(all))?.named("all");
    let calls = InFlight::try_at_most(16)?.try_max_hold(LONGEST)?;
    let calls = Limit::try_new(AnyRule::from(calls))?
        .named("calls")
        .key(PeerIp::new());
    let rate: AnyRule = "token-bucket 10/1s burst=40".parse()?;
    let limits = RateLimitLayer::new(rate)
        .named("rate")
        .key(PeerIp::new())
        .try_also(calls)?
        .try_also(all)?;
    let length = async |body: Bytes| format!("{} bytes\n", body.len());
    Ok(Router::new()
        .route("/", get(async || "hello\n"))
        .route("/length", post(length))
        .layer(DefaultBodyLimit::max(1024 * 1024))
        .layer(axum::middleware::from_fn(within))
        // Outermost, so that a refused request costs least.
        .layer(limits))
}

/// Ends a request that takes too long, such as one whose body never ends.
async fn within(
    request: axum::extract::Request,
    next: axum::middleware::Next,
) -> Result<axum::response::Response, http::StatusCode> {
    let response = tokio::time::timeout(SLOWEST, next.run(request)).await;
    response.map_err(|_| http::StatusCode::REQUEST_TIMEOUT)
}

/// Serves until `stop`. Returns what became of the connections.
async fn serve(
    guarded: Guarded<TcpListener>,
    app: Router,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<ConnectionStats> {
    let connections = guarded.connections();
    let listener = guarded.for_axum().map_err(io::Error::other)?;
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, app)
        .with_graceful_shutdown(stop)
        .await?;
    Ok(connections.stats())
}

#[tokio::main]
async fn main() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:3000").await?;
    println!("http://{}/", listener.local_addr()?);
    let stop = async { drop(tokio::signal::ctrl_c().await) };
    let app = app().map_err(io::Error::other)?;
    println!("{:#?}", serve(guarded(listener), app, stop).await?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpStream,
        sync::oneshot,
    };

    use super::*;

    /// Sends a request, and returns the answer; nothing if the connection is reset.
    async fn ask(server: SocketAddr, request: &str) -> String {
        let mut answer = String::new();
        let asks = async {
            let mut client = TcpStream::connect(server).await?;
            client.write_all(request.as_bytes()).await?;
            client.read_to_string(&mut answer).await
        };
        drop(asks.await);
        answer
    }

    #[tokio::test]
    async fn each_limit_has_its_answer() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let guarded = guarded(listener).head_within(Duration::from_secs(4));
        let stopped = async { drop(stopped.await) };
        let serving = tokio::spawn(serve(guarded, app().unwrap(), stopped));

        let get = "GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
        let mut refused = 0;
        let mut asked = 0;
        while refused == 0 {
            asked += 1;
            assert!(asked < 90, "none is refused");
            let answer = ask(server, get).await;
            let is_admitted = answer.starts_with("HTTP/1.1 200") && answer.ends_with("hello\n");
            refused += usize::from(answer.starts_with("HTTP/1.1 429"));
            assert!(is_admitted || refused > 0, "{answer}");
        }
        // Connections that say nothing: the first are closed after their time, the others at once.
        let mut silent = tokio::task::JoinSet::new();
        for _ in 0..80 {
            silent.spawn(ask(server, ""));
        }
        assert!(silent.join_all().await.iter().all(String::is_empty));

        stop.send(()).unwrap();
        let stats = serving.await.unwrap().unwrap();
        let turned_away = stats.refused_per_client + stats.refused_accept;
        assert!(turned_away >= 16, "{stats:?}");
        assert_eq!(stats.closed_head_late + turned_away, 80, "{stats:?}");
        assert_eq!((stats.accepted, stats.open), (asked + 80 - turned_away, 0));
    }
}
