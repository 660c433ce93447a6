//! As the back-off of `tower::retry`, in tokio's paused time.

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

/// An answer: nothing to say, or when to come again, which may be left open.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Answer {
    Yes,
    Later(Option<Duration>),
}

/// Tries again until it is let through, and tells the back-off what the server said.
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

/// As generic code makes one.
fn made<M: MakeBackoff>(mut maker: M) -> M::Backoff {
    maker.make_backoff()
}

/// What passes between the calls to a server that gives these answers, one after the other.
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

/// Timers wait for the next whole millisecond, and at least as long as they are told.
fn agree(waits: &[Duration], delays: &[Duration]) {
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
    agree(&waits(made(backoff), &answers).await, &delays);
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
    agree(&waits, &delays);
    for (wait, asked) in waits.iter().zip(asked) {
        assert!(*wait >= asked);
    }
}

#[tokio::test(start_paused = true)]
async fn each_request_begins_anew() {
    let later = Answer::Later(None);
    let answers = [later, later, later, Answer::Yes];
    // What a policy holds is cloned for each request; this one has grown to its cap.
    let mut used = BACKOFF.seed(1).sleeps();
    for _ in 0..10 {
        used.next_backoff().await;
    }
    let first: Vec<_> = BACKOFF.seed(1).delays().take(3).collect();
    agree(&waits(used.clone(), &answers).await, &first);
    agree(&waits(used.clone(), &answers).await, &first);

    // Without a seed, not all requests of a client wait for the same instants.
    let sleeps = BACKOFF.sleeps();
    let [one, other] = [sleeps.clone(), sleeps.clone()];
    assert_ne!(waits(one, &answers).await, waits(other, &answers).await);
}
