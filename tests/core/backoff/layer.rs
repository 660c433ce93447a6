//! Clients that back off, in front of a limit that sends `Retry-After`.

use std::{
    collections::HashSet,
    convert::Infallible,
    future::{Ready, ready},
    sync::{Arc, Mutex},
    time::Duration,
};

use http::{Request, Response, StatusCode, header::RETRY_AFTER};
use tokio::{task::JoinSet, time::Instant};
use tollgate::{
    AnyRule, RateLimitLayer, backoff::Backoff, key::Header, store::LocalBuilder, time::TokioClock,
};
use tower::{Layer, Service, ServiceExt, retry::Retry, util::BoxCloneService};

use crate::backoff::retry::{Answer, Obedient};

type Server = BoxCloneService<Request<()>, Response<String>, Infallible>;

/// Returns a server that limits its clients by the header `client`, in tokio's time.
fn server(rule: &str) -> Server {
    fn hello(_: Request<()>) -> Ready<Result<Response<String>, Infallible>> {
        ready(Ok(Response::new("hello".to_owned())))
    }
    let layer = RateLimitLayer::new(rule.parse::<AnyRule>().unwrap())
        .key(Header::new("client"))
        .store(LocalBuilder::new().clock(TokioClock::new()).build());
    BoxCloneService::new(layer.layer(tower::service_fn(hello)))
}

fn read(response: &Response<String>) -> Answer {
    if response.status() == StatusCode::OK {
        return Answer::Yes;
    }
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    let seconds = response.headers()[RETRY_AFTER].to_str().unwrap();
    let wait = Duration::from_secs(seconds.parse().unwrap());
    Answer::Later(Some(wait))
}

/// Sends requests one after the other, each until it passes. Returns all answers with their
/// instants.
async fn send(
    server: Server,
    client: String,
    backoff: Backoff,
    requests: usize,
) -> Vec<(Answer, Instant)> {
    let log = Arc::new(Mutex::new(Vec::new()));
    let written = Arc::clone(&log);
    let server = server.map_response(move |response| {
        let answer = read(&response);
        written.lock().unwrap().push((answer, Instant::now()));
        answer
    });
    let mut service = Retry::new(Obedient(backoff.sleeps()), server);
    for _ in 0..requests {
        let request = Request::builder()
            .header("client", &client)
            .body(())
            .unwrap();
        let answer = service.ready().await.unwrap().call(request).await;
        assert_eq!(answer, Ok(Answer::Yes));
    }
    drop(service);
    Arc::into_inner(log).unwrap().into_inner().unwrap()
}

const BACKOFF: Backoff = Backoff::full(Duration::from_secs(1), Duration::from_secs(10));

#[tokio::test(start_paused = true)]
async fn a_client_that_obeys_retry_after_is_never_early() {
    // One unit in 8⁴⁄₇ s.
    let server = server("token-bucket 7/1m burst=3");
    let mut clients = JoinSet::new();
    for client in 0..40 {
        let backoff = [
            BACKOFF,
            Backoff::exponential(Duration::ZERO, Duration::ZERO),
        ][client % 2];
        clients.spawn(send(server.clone(), client.to_string(), backoff, 30));
    }
    for log in clients.join_all().await {
        let refused = log.iter().filter(|(answer, _)| *answer != Answer::Yes);
        assert!(refused.count() >= 20);
        for pair in log.windows(2) {
            if let (Answer::Later(Some(wait)), before) = pair[0] {
                assert_eq!(pair[1].0, Answer::Yes);
                assert!(pair[1].1 - before >= wait);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn clients_with_equal_retry_after_return_at_different_instants() {
    let server = server("fixed-window 100/1h");
    send(server.clone(), "all".to_owned(), BACKOFF, 100).await;

    let mut clients = JoinSet::new();
    for seed in 0..50 {
        clients.spawn(send(
            server.clone(),
            "all".to_owned(),
            BACKOFF.seed(seed),
            1,
        ));
    }
    let logs = clients.join_all().await;
    let expected = logs[0][0];
    let mut instants = HashSet::new();
    for log in &logs {
        // All are refused at one instant by one window.
        let [first, (Answer::Yes, instant)] = log[..] else {
            panic!("expected one refusal and an admission: {log:?}");
        };
        assert_eq!(first, expected);
        instants.insert(instant);
    }
    // The delays are spread over a thousand milliseconds.
    assert!(instants.len() > 40, "{} instants", instants.len());
}
