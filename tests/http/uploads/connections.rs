//! Refused uploads over connections of HTTP/1 and HTTP/2.

use std::{convert::Infallible, net::SocketAddr};

use axum::body::{Body, Bytes};
use futures_util::{StreamExt, stream};
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
    service::TowerToHyperService,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::timeout,
};
use tollgate::respond::{DrainStats, Http};

use super::{SOON, app, ended, serve};

/// A client that reads and writes the bytes of a connection.
struct Connection(TcpStream);

impl Connection {
    /// Spends the only request of a server, and keeps the connection.
    async fn to(server: SocketAddr) -> Self {
        let mut connection = Self(TcpStream::connect(server).await.unwrap());
        connection
            .send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n\r\nbody")
            .await;
        let answer = connection.answer().await;
        assert!(
            answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("4 bytes"),
            "{answer}"
        );
        connection
    }

    async fn send(&mut self, text: &str) {
        self.0.write_all(text.as_bytes()).await.unwrap();
    }

    /// Reads a response with a length.
    async fn answer(&mut self) -> String {
        let mut answer = Vec::new();
        let is_whole = |answer: &[u8]| {
            let text = String::from_utf8_lossy(answer);
            let (head, body) = text.split_once("\r\n\r\n")?;
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "))?;
            (body.len() == length.parse::<usize>().unwrap()).then_some(())
        };
        while is_whole(&answer).is_none() {
            let read = timeout(SOON, self.0.read_buf(&mut answer)).await;
            let read = read.expect("an answer in time").unwrap();
            assert!(
                read > 0,
                "closed after {:?}",
                String::from_utf8_lossy(&answer)
            );
        }
        String::from_utf8(answer).unwrap()
    }

    async fn refusal(&mut self) {
        let answer = self.answer().await;
        assert!(answer.starts_with("HTTP/1.1 429 "), "{answer}");
        assert!(
            answer.ends_with('}') && answer.contains("\"status\":429"),
            "{answer}"
        );
    }

    /// Waits until the server has closed the connection.
    async fn closed(mut self) {
        let mut rest = Vec::new();
        let end = timeout(SOON, self.0.read_to_end(&mut rest)).await;
        // With a reset, if bytes are unread.
        let _ = end.expect("an end in time");
        assert_eq!(String::from_utf8(rest).unwrap(), "");
    }
}

#[tokio::test]
async fn the_answer_comes_while_the_body_is_sent_and_the_connection_is_kept() {
    let respond = Http::new().drain_bodies();
    let mut connection = Connection::to(serve(app(Some(&respond))).await).await;
    for finished in 1..=3 {
        connection
            .send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1000000\r\n\r\n")
            .await;
        connection.send(&"a".repeat(400_000)).await;
        connection.refusal().await;
        assert_eq!(respond.stats().in_flight, 1);
        connection.send(&"b".repeat(600_000)).await;
        assert_eq!(ended(&respond).await.finished, finished);
    }
    // And one without a length.
    connection
        .send("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n")
        .await;
    connection.refusal().await;
    connection.send("3\r\ndef\r\n0\r\n\r\n").await;
    let stats = ended(&respond).await;
    assert_eq!((stats.started, stats.finished, stats.failed), (4, 4, 0));
    // Without a body there is nothing to read.
    for length in ["", "content-length: 0\r\n"] {
        connection
            .send(&format!("POST / HTTP/1.1\r\nhost: a\r\n{length}\r\n"))
            .await;
        connection.refusal().await;
    }
    assert_eq!(respond.stats(), stats);
}

#[tokio::test]
async fn a_client_that_hangs_up_is_a_failed_body() {
    let respond = Http::new().drain_bodies();
    let mut connection = Connection::to(serve(app(Some(&respond))).await).await;
    connection
        .send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\nbo")
        .await;
    connection.refusal().await;
    drop(connection);
    let stats = ended(&respond).await;
    assert_eq!((stats.started, stats.failed), (1, 1));
}

/// Its client may never send the body, and send its next request instead. So hyper closes the
/// connection.
#[tokio::test]
async fn a_body_behind_an_expectation_is_not_read() {
    let respond = Http::new().drain_bodies();
    let mut connection = Connection::to(serve(app(Some(&respond))).await).await;
    connection
        .send("POST / HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 9\r\n\r\n")
        .await;
    // No `100 Continue` before it.
    connection.refusal().await;
    connection.closed().await;
    assert_eq!(respond.stats(), DrainStats::default());
}

#[tokio::test]
async fn without_the_setter_the_connection_is_closed() {
    let mut connection = Connection::to(serve(app(None)).await).await;
    connection
        .send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\nbo")
        .await;
    connection.refusal().await;
    connection.closed().await;
}

/// A refused upload over HTTP/2 gets its answer and a reset of its stream; the connection stays.
#[tokio::test]
async fn over_http_2_the_answer_comes_without_reading() {
    let respond = Http::new().drain_bodies();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let service = TowerToHyperService::new(app(Some(&respond)));
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let server = auto::Builder::new(TokioExecutor::new()).http2_only();
        server.serve_connection(TokioIo::new(stream), service).await
    });

    let stream = TcpStream::connect(address).await.unwrap();
    let (mut client, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    tokio::spawn(connection);
    let mut statuses = Vec::new();
    for _ in 0..3 {
        let endless = stream::repeat(Bytes::from_static(&[0; 1000])).map(Ok::<_, Infallible>);
        let body = match statuses[..] {
            [] => Body::from("body"),
            _ => Body::from_stream(endless),
        };
        let request = Request::post(format!("http://{address}/"))
            .body(body)
            .unwrap();
        let response = timeout(SOON, client.send_request(request)).await;
        let response = response.expect("an answer in time").unwrap();
        statuses.push(response.status());
        let body = timeout(SOON, response.into_body().collect()).await;
        let body = body.expect("a body in time").unwrap().to_bytes();
        assert!(body == "4 bytes" || body.ends_with(b"}"), "{body:?}");
    }
    let refused = StatusCode::TOO_MANY_REQUESTS;
    assert_eq!(statuses, [StatusCode::OK, refused, refused]);
    assert_eq!(respond.stats(), DrainStats::default());
}
