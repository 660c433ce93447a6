//! The back-off in `tower::retry`, in tokio's paused time.

use std::{
    convert::Infallible,
    future::ready,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::time::{Instant, Sleep};
use tollgate::backoff::{Backoff, Sleeps};
use tower::{
    Service, ServiceBuilder, ServiceExt,
    retry::{
        Policy,
        backoff::{Backoff as _, MakeBackoff},
    },
    service_fn,
};

/// A response: admitted, or refused with or without a time to wait.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Answer {
    Yes,
    Later(Option<Duration>),
}

/// Retries until it is admitted, and passes the server's wait to the back-off.
#[derive(Clone)]
pub(crate) struct Obedient(pub(crate) Sleeps);

impl<Request: Clone, E> Policy<Request, Answer, E> for Obedient {
    type Future = Sleep;

    fn retry(&mut self, _: &mut Request, result: &mut Result<Answer, E>) -> Option<Sleep> {
        match result {
            Ok(Answer::Later(Some(least))) => Some(self.0.next_at_least(*least)),
            Ok(Answer::Later(None)) => Some(self.0.next_backoff()),
            Ok(Answer::Yes) | Err(_) => None,
        }
    }

    fn clone_request(&mut self, request: &Request) -> Option<Request> {
        Some(request.clone())
    }
}

/// Makes a back-off like generic code.
fn made<M: MakeBackoff>(mut maker: M) -> M::Backoff {
    maker.make_backoff()
}

/// Returns the time between the calls to a server that gives these answers in turn.
async fn waits(sleeps: Sleeps, answers: &[Answer]) -> Vec<Duration> {
    let calls = Arc::new(Mutex::new(Vec::new()));
    let mut service = ServiceBuilder::new()
        .retry(Obedient(sleeps))
        .service(service_fn(|()| {
            let mut calls = calls.lock().unwrap();
            let answer = answers[calls.len()];
            calls.push(Instant::now());
            ready(Ok::<_, Infallible>(answer))
        }));
    let answer = service.ready().await.unwrap().call(()).await;
    assert_eq!(answer, Ok(Answer::Yes));
    let calls = calls.lock().unwrap();
    assert_eq!(calls.len(), answers.len());
    calls.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

/// Asserts that each wait is its delay, rounded up to the timer's next millisecond.
fn assert_waits(waits: &[Duration], delays: &[Duration]) {
    assert_eq!(waits.len(), delays.len());
    for (wait, delay) in waits.iter().zip(delays) {
        let late = wait.checked_sub(*delay);
        assert!(
            late.is_some_and(|late| late < Duration::from_millis(2)),
            "waited {waits:?}, not {delays:?}"
        );
    }
}

const BACKOFF: Backoff = Backoff::full(Duration::from_secs(1), Duration::from_secs(8));

#[tokio::test(start_paused = true)]
async fn a_retry_waits_as_its_delays_say() {
    let backoff = BACKOFF.seed(3);
    let later = Answer::Later(None);
    let answers = [later, later, later, later, later, Answer::Yes];
    let delays: Vec<_> = backoff.delays().take(5).collect();
    assert_waits(&waits(made(backoff), &answers).await, &delays);
}

#[tokio::test(start_paused = true)]
async fn a_retry_waits_at_least_as_long_as_the_server_says() {
    let asked = [7, 60, 0, 3600].map(Duration::from_secs);
    let mut answers = asked.map(|wait| Answer::Later(Some(wait))).to_vec();
    answers.extend([Answer::Later(None), Answer::Yes]);

    let backoff = BACKOFF.seed(11);
    let mut delays: Vec<_> = backoff.delays().take(5).collect();
    for (delay, asked) in delays.iter_mut().zip(asked) {
        *delay += asked;
    }
    let waits = waits(made(backoff), &answers).await;
    assert_waits(&waits, &delays);
    for (wait, asked) in waits.iter().zip(asked) {
        assert!(*wait >= asked);
    }
}

#[tokio::test(start_paused = true)]
async fn each_request_starts_at_the_first_attempt() {
    let later = Answer::Later(None);
    let answers = [later, later, later, Answer::Yes];
    // The state of a policy is cloned for each request. This one has grown to its cap.
    let mut used = BACKOFF.seed(1).sleeps();
    for _ in 0..10 {
        used.next_backoff().await;
    }
    let first: Vec<_> = BACKOFF.seed(1).delays().take(3).collect();
    assert_waits(&waits(used.clone(), &answers).await, &first);
    assert_waits(&waits(used.clone(), &answers).await, &first);

    // Without a seed, the requests of one client have different delays.
    let sleeps = BACKOFF.sleeps();
    let [one, other] = [sleeps.clone(), sleeps.clone()];
    assert_ne!(waits(one, &answers).await, waits(other, &answers).await);
}
