//! The demands on a server, and the messages about one that does not meet them.

use std::net::SocketAddr;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};
use tollgate::{
    TokenBucket,
    store::{Memcached, StoreError},
};

use super::{connect, servers, url};

/// Something that answers every line with the same.
async fn answering(answer: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut bytes = [0; 4096];
            while let Ok(length @ 1..) = stream.read(&mut bytes).await {
                let lines = bytes[..length]
                    .iter()
                    .filter(|byte| **byte == b'\n')
                    .count();
                let _ = stream.write_all(answer.repeat(lines).as_bytes()).await;
            }
        }
    });
    address
}

/// The reason why nobody can connect there; what is not told by the URL is told in the same words
/// by each call of a store that was made before anybody was asked.
async fn refused(url: String) -> StoreError {
    let error = Memcached::<TokenBucket>::connect(&url).await.unwrap_err();
    if let Ok(store) = Memcached::<TokenBucket>::connect_lazy(&url) {
        for _ in 0..3 {
            let call = super::acquire(&store, &super::at_once(2), super::key()).await;
            assert_eq!(call.unwrap_err().to_string(), error.to_string());
        }
    }
    error
}

#[tokio::test]
async fn a_missing_server_is_a_specific_error() {
    let server = servers::Memcached::start();
    let address = server.address();
    drop(server);
    let error = refused(url(address)).await;
    assert!(error.is_unavailable(), "{error:?}");
    let error = refused("http://127.0.0.1".to_owned()).await;
    assert!(
        !error.is_unavailable() && error.to_string().contains("memcached://host:port"),
        "{error:?}"
    );
}

#[tokio::test]
async fn somebody_else_is_an_error_that_says_so() {
    for (answer, why) in [
        (
            "VERSION 1.5.22\r\n",
            "1.5.22, which has no meta commands: expected 1.6",
        ),
        (
            "HTTP/1.1 400 Bad Request\r\n\r\n",
            "HTTP/1.1 400 Bad Request",
        ),
        ("ERROR\r\n", "ERROR"),
        ("ERROR Too many open connections\r\n", "(-c)"),
        // It says that it is new enough, and knows nothing.
        ("VERSION 1.6.0\r\n", "have no `time`"),
        ("\r\n", "memcached answered"),
        ("EN\r\n", "expected a response to the command"),
    ] {
        let error = refused(url(answering(answer).await)).await;
        assert!(
            !error.is_timeout() && error.to_string().contains(why),
            "{answer:?}: {error}",
        );
    }
}

#[tokio::test]
async fn a_server_that_numbers_no_writes_is_refused() {
    let server = servers::Memcached::options().argument("-C").start();
    let error = refused(url(server.address())).await;
    assert!(error.to_string().contains("without -C"), "{error}");
}

#[tokio::test]
async fn to_connect_writes_nothing() {
    let server = servers::Memcached::start();
    connect(&server).await;
    assert_eq!(super::stat(&server, "stats", "total_items"), 0);
    assert_eq!(super::stat(&server, "stats", "curr_items"), 0);
}

#[tokio::test]
async fn names_of_hosts_are_looked_up() {
    let server = servers::Memcached::start();
    let url = url(format!("localhost:{}", server.port()));
    let store = Memcached::<TokenBucket>::connect(url).await.unwrap();
    let decision = super::acquire(&store, &super::at_once(2), super::key()).await;
    assert!(decision.unwrap().is_admitted());
}
