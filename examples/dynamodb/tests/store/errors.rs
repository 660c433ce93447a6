//! Failures on the way to DynamoDB: each is one clear error, and nothing is lost by it.

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    body::{Body, Bytes, to_bytes},
    extract::Request,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Mutex,
};
use tollgate::{
    TokenBucket,
    key::Key,
    store::driver::{CasStore, CompareAndSwap, Increment},
};
use tollgate_dynamodb::{Dynamo, Place};

use crate::common::{Dynalite, acquire, at_once, connect, dynamo};

#[tokio::test]
async fn a_missing_table_says_how_to_make_one() {
    let server = Dynalite::start();
    let error = connect(&server.url()).load(b"key").await.unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("there is no table `limits`") && text.contains("create_table"),
        "{text}"
    );
    // Twice is no error.
    dynamo(&server).await.create_table().await.unwrap();
    assert_eq!(
        connect(&server.url()).load(b"key").await.unwrap().value,
        None
    );
}

#[tokio::test]
async fn no_server_is_unavailable() {
    let gone = format!("http://127.0.0.1:{}", support::servers::free_port());
    let error = connect(&gone).load(b"key").await.unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    let silent = Dynalite::start();
    let hurried = connect(&silent.url()).response_timeout(Duration::from_millis(200));
    hurried.create_table().await.unwrap_or_default();
    silent.pause();
    let error = hurried.load(b"key").await.unwrap_err();
    assert!(error.is_timeout(), "{error}");
    silent.resume();
}

#[derive(Clone, Copy)]
enum Fault {
    None,
    /// Writes do not reach the table.
    Throttled,
    /// Reads do not reach the table.
    Unread,
    /// No request reaches the table.
    Rejected,
    Nonsense,
    /// The request is carried out, and its answer does not arrive.
    Lost,
}

/// A proxy before the server, with one fault at a time.
struct Way {
    fault: Arc<Mutex<Fault>>,
    url: String,
}

impl Way {
    async fn to(server: &Dynalite) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let fault = Arc::new(Mutex::new(Fault::None));
        let (current, to) = (Arc::clone(&fault), server.address());
        let app = Router::new().fallback(async move |request: Request| {
            let fault = *current.lock().await;
            let said = |code: &str| {
                let body = format!(r#"{{"__type":"com.amazonaws.dynamodb.v20120810#{code}","message":"on purpose"}}"#);
                (StatusCode::BAD_REQUEST, [("content-type", "application/x-amz-json-1.0")], body).into_response()
            };
            match fault {
                Fault::Throttled if is_write(&request) => {
                    return said("ProvisionedThroughputExceededException");
                }
                Fault::Unread if !is_write(&request) => {
                    return said("ProvisionedThroughputExceededException");
                }
                Fault::Rejected => return said("UnrecognizedClientException"),
                Fault::Nonsense => return (StatusCode::OK, "<html>").into_response(),
                Fault::None | Fault::Throttled | Fault::Unread | Fault::Lost => {}
            }
            let (head, body) = request.into_parts();
            let body = to_bytes(body, 1 << 20).await.unwrap();
            let answer = pass_on(to, &head.headers, &body).await;
            if matches!(fault, Fault::Lost) {
                std::future::pending::<()>().await;
            }
            answer
        });
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { fault, url }
    }

    async fn set(&self, fault: Fault) {
        *self.fault.lock().await = fault;
    }
}

fn is_write(request: &Request) -> bool {
    let target = request.headers().get("x-amz-target");
    let target = target.and_then(|target| target.to_str().ok());
    target.is_some_and(|target| !target.contains("Get"))
}

/// Sends a request to the server, and returns its answer.
async fn pass_on(to: std::net::SocketAddr, headers: &HeaderMap, body: &Bytes) -> Response {
    let mut stream = TcpStream::connect(to).await.unwrap();
    let mut request = b"POST / HTTP/1.1\r\nconnection: close\r\n".to_vec();
    for (name, value) in headers.iter().filter(|(name, _)| *name != "connection") {
        request.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
    }
    request.extend([b"\r\n", &body[..]].concat());
    stream.write_all(&request).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let text = String::from_utf8(answer).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse::<u16>().unwrap();
    let mut response = Response::new(Body::from(body.to_owned()));
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    response
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_are_told_apart_and_charge_nothing() {
    let server = Dynalite::start();
    dynamo(&server).await;
    let way = Way::to(&server).await;
    let store = CasStore::<_, TokenBucket>::new(connect(&way.url));
    let (rule, key) = (at_once(3), Key::from(1_u64));
    assert!(acquire(&store, &rule, key).await.unwrap().is_admitted());
    for (fault, is_unavailable, part) in [
        (Fault::Throttled, false, "throttles the table `limits`"),
        (Fault::Rejected, false, "rejects the credentials"),
        (Fault::Nonsense, true, ""),
    ] {
        way.set(fault).await;
        // A table without capacity for writes still answers reads, by which clients are refused.
        let is_throttled = matches!(fault, Fault::Throttled);
        let of_swap = acquire(&store, &rule, key).await.unwrap_err();
        let dynamo = connect(&way.url);
        let of_addition = dynamo.add(b"n", 1, Duration::from_secs(1), &[]).await;
        let of_subtraction = dynamo.subtract(b"n", 1).await;
        for error in [
            of_swap,
            of_addition.unwrap_err(),
            of_subtraction.unwrap_err(),
        ] {
            assert!(error.to_string().contains(part), "{error}");
            assert_eq!(error.is_unwritten(), is_throttled, "{error}");
            assert_eq!(error.is_unavailable(), is_unavailable, "{error}");
        }
        let read = dynamo.read(&[(*b"n").into()]).await;
        assert_eq!(read.is_ok(), is_throttled, "{read:?}");
    }
    way.set(Fault::None).await;
    let mut left = 0;
    while acquire(&store, &rule, key).await.unwrap().is_admitted() {
        left += 1;
    }
    assert_eq!(left, 2);
    assert_eq!(
        connect(&way.url).read(&[(*b"n").into()]).await.unwrap(),
        [0]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_addition_whose_neighbours_cannot_be_read_is_taken_back() {
    let server = Dynalite::start();
    dynamo(&server).await;
    let way = Way::to(&server).await;
    let dynamo = connect(&way.url);
    let add = async |amount| {
        let beside = [(*b"m").into()];
        dynamo
            .add(b"n", amount, Duration::from_secs(60), &beside)
            .await
    };
    assert_eq!(add(2).await.unwrap().total, 2);
    way.set(Fault::Unread).await;
    let error = add(3).await.unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    way.set(Fault::None).await;
    assert_eq!(dynamo.read(&[(*b"n").into()]).await.unwrap(), [2]);
}

/// A repetition would add twice, so nothing is sent again: also not by the SDK.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_whose_answer_is_lost_counts_once() {
    let server = Dynalite::start();
    dynamo(&server).await;
    let way = Way::to(&server).await;
    let hurried = Dynamo::connect(Place::local(&way.url), "limits");
    way.set(Fault::Lost).await;
    let lost = hurried.add(b"n", 5, Duration::from_secs(60), &[]).await;
    assert!(lost.unwrap_err().is_timeout());
    way.set(Fault::None).await;
    let patient = connect(&way.url);
    // The proxy may still be passing it on.
    for _ in 0..1000 {
        if patient.read(&[(*b"n").into()]).await.unwrap() != [0] {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(patient.read(&[(*b"n").into()]).await.unwrap(), [5]);
    assert_eq!(
        patient
            .subtract(b"n", 9)
            .await
            .map_err(|error| error.to_string()),
        Ok(())
    );
    assert_eq!(
        patient
            .read(&[(*b"n").into(), (*b"m").into()])
            .await
            .unwrap(),
        [0, 0]
    );
    patient.remove(&[(*b"n").into()]).await.unwrap();
}
