//! A leaky bucket behind the layer, in tokio's paused time. Requests are held until their
//! departure, and a request that is dropped meanwhile frees its position.

use std::{
    convert::Infallible,
    future::{Future, Ready, ready},
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};

use proptest::prelude::*;
use tokio::{
    task::JoinHandle,
    time::{Instant, advance, sleep, timeout},
};
use tollgate::{
    AnyRule, Decision, LeakyBucket, Limit, Policy, RateLimitLayer,
    algorithm::Algorithm,
    key::Key,
    respond::{Refusal, Respond},
    store::{Local, LocalBuilder},
    time::TokioClock,
};
use tower::{
    Layer, Service, ServiceExt,
    limit::{ConcurrencyLimit, ConcurrencyLimitLayer},
    util::BoxCloneService,
};

/// A request is just its number.
type Number = usize;

#[derive(Debug, PartialEq)]
enum Answer {
    Left(Instant),
    Refused(Option<Duration>),
}

#[derive(Clone)]
struct Refusing;

impl Respond<Number, Answer, Infallible> for Refusing {
    type Annotation = ();

    fn wants_outcome(&self) -> bool {
        false
    }

    fn admit(&self, _: &mut Number, _: tollgate::Outcome) {}

    fn annotate((): (), _: &mut Answer) {}

    fn refuse(&self, _: Number, refusal: Refusal) -> Result<Answer, Infallible> {
        Ok(Answer::Refused(refusal.retry_after()))
    }
}

/// Records when it was polled for readiness, and when each request arrived.
#[derive(Clone, Default)]
struct Recorder {
    asked: Arc<Mutex<Vec<Instant>>>,
    left: Arc<Mutex<Vec<(Number, Instant)>>>,
}

impl Recorder {
    fn left(&self) -> Vec<(Number, Instant)> {
        self.left.lock().unwrap().clone()
    }
}

impl Service<Number> for Recorder {
    type Response = Answer;
    type Error = Infallible;
    type Future = Ready<Result<Answer, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.asked.lock().unwrap().push(Instant::now());
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, number: Number) -> Self::Future {
        let now = Instant::now();
        self.left.lock().unwrap().push((number, now));
        ready(Ok(Answer::Left(now)))
    }
}

/// A layer around a recorder, and its observable parts.
struct Setup<A: Algorithm> {
    rule: A,
    store: Local<A, TokioClock>,
    inner: Recorder,
    cancelled: Box<dyn Fn() -> u64>,
    service: BoxCloneService<Number, Answer, Infallible>,
    begun: Instant,
}

impl<A: Algorithm> Setup<A> {
    fn new(rule: A) -> Self {
        let store = LocalBuilder::new().clock(TokioClock::new()).build();
        let layer = RateLimitLayer::new(rule.clone())
            .store(store.clone())
            .respond(Refusing);
        let inner = Recorder::default();
        Self {
            service: BoxCloneService::new(layer.layer(inner.clone())),
            cancelled: Box::new(move || layer.cancelled()),
            rule,
            store,
            inner,
            begun: Instant::now(),
        }
    }

    /// Sends a request in a task of its own, and returns at once.
    async fn send(&self, number: Number) -> JoinHandle<Answer> {
        let mut service = self.service.clone();
        let answer = service.ready().await.unwrap().call(number);
        let sent = tokio::spawn(async { answer.await.unwrap() });
        tokio::task::yield_now().await;
        sent
    }

    async fn send_all(&self, numbers: std::ops::Range<Number>) -> Vec<JoinHandle<Answer>> {
        let mut sent = Vec::new();
        for number in numbers {
            sent.push(self.send(number).await);
        }
        sent
    }

    fn look(&self) -> Decision {
        let policy = Policy::default();
        self.store.look(&policy, &self.rule, &Key::GLOBAL)
    }

    /// Returns the departed requests, with milliseconds since the start.
    fn left(&self) -> Vec<(Number, u128)> {
        let since = |at: Instant| {
            let nanos = (at - self.begun).as_nanos();
            assert_eq!(nanos % 1_000_000, 0);
            nanos / 1_000_000
        };
        let left = self.inner.left();
        left.iter()
            .map(|(number, at)| (*number, since(*at)))
            .collect()
    }
}

/// Drops a waiting request.
async fn drop_waiting(sent: JoinHandle<Answer>) {
    sent.abort();
    assert!(sent.await.unwrap_err().is_cancelled());
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[tokio::test(start_paused = true)]
async fn requests_depart_in_order_an_interval_apart() {
    let setup = Setup::new(LeakyBucket::per_second(10).queue(20));
    for sent in setup.send_all(0..21).await {
        sent.await.unwrap();
    }
    let exact: Vec<_> = (0..21).map(|n| (n, n as u128 * 100)).collect();
    assert_eq!(setup.left(), exact);

    // After idle time they do not depart faster.
    sleep(millis(58_000)).await;
    for sent in setup.send_all(21..24).await {
        sent.await.unwrap();
    }
    assert_eq!(
        setup.left()[21..],
        [(21, 60_000), (22, 60_100), (23, 60_200)]
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_without_room_is_refused_at_once() {
    for (rule, places) in [
        (LeakyBucket::per_second(10).queue(3), 4),
        (LeakyBucket::per_second(10).max_wait(millis(250)), 3),
    ] {
        let setup = Setup::new(rule);
        let sent = setup.send_all(0..places).await;
        let retry = setup.send(99).await.await.unwrap();
        assert_eq!(setup.begun.elapsed(), Duration::ZERO, "at once");
        let wait = if places == 4 { 100 } else { 50 };
        assert_eq!(retry, Answer::Refused(Some(millis(wait))));

        advance(millis(wait - 1)).await;
        let early = setup.send(99).await.await.unwrap();
        assert_eq!(early, Answer::Refused(Some(millis(1))));
        advance(millis(1)).await;
        let in_time = setup.send(places).await;
        for sent in sent.into_iter().chain([in_time]) {
            sent.await.unwrap();
        }
        let exact: Vec<_> = (0..=places).map(|n| (n, n as u128 * 100)).collect();
        assert_eq!(setup.left(), exact, "a refused request took no position");
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_request_frees_its_position_only_for_later_requests() {
    let setup = Setup::new(LeakyBucket::per_second(10).queue(4));
    let mut sent = setup.send_all(0..5).await;
    assert_eq!(setup.look().remaining(), Some(0));
    // The position of the last request goes to the next one.
    drop_waiting(sent.pop().unwrap()).await;
    sent.push(setup.send(5).await);
    // A position in the middle is not given out again, because another request waits after it.
    drop_waiting(sent.remove(2)).await;
    let refused = setup.send(6).await.await.unwrap();
    assert_eq!(refused, Answer::Refused(Some(millis(100))));
    for sent in sent {
        sent.await.unwrap();
    }
    assert_eq!(setup.left(), [(0, 0), (1, 100), (3, 300), (5, 400)]);
    assert_eq!((setup.cancelled)(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_inner_service_is_polled_again_only_after_the_wait() {
    let setup = Setup::new(LeakyBucket::per_second(10));
    let asked = || std::mem::take(&mut *setup.inner.asked.lock().unwrap());
    let sent = setup.send_all(0..3).await;
    // The layer polled readiness before it decided.
    assert_eq!(asked(), [setup.begun; 3]);
    for sent in sent {
        sent.await.unwrap();
    }
    assert_eq!(asked(), [100, 200].map(|after| setup.begun + millis(after)));
}

#[tokio::test(start_paused = true)]
async fn a_queue_holds_no_capacity_of_the_inner_service() {
    let limit = ConcurrencyLimitLayer::new(1);
    let inner: ConcurrencyLimit<Recorder> = limit.layer(Recorder::default());
    let service = RateLimitLayer::new(LeakyBucket::per_second(10))
        .store(LocalBuilder::new().clock(TokioClock::new()).build())
        .respond(Refusing)
        .layer(inner);
    let begun = Instant::now();
    let ready = async || {
        let mut service = service.clone();
        // This would wait forever if a waiting request held the only permit.
        let ready = timeout(millis(1), service.ready()).await;
        ready.expect("a permit").unwrap();
        service
    };
    let first = ready().await.call(0).await;
    assert_eq!(first.unwrap(), Answer::Left(begun));
    let mut waiting = Vec::new();
    for number in 1..8 {
        waiting.push(Box::pin(ready().await.call(number)));
    }
    for (number, answer) in (1..).zip(waiting) {
        let at = begun + millis(100 * number);
        assert_eq!(answer.await.unwrap(), Answer::Left(at));
    }
}

/// Each limit of a layer knows its own delay, although the request waits for the longest.
#[tokio::test(start_paused = true)]
async fn a_dropped_request_frees_its_position_in_every_queue() {
    let store: Local<LeakyBucket, TokioClock> =
        LocalBuilder::new().clock(TokioClock::new()).build();
    let rules = [LeakyBucket::per_second(10), LeakyBucket::per_second(4)];
    let layer = RateLimitLayer::new(rules[0])
        .named("fast")
        .also(Limit::new(rules[1]).named("slow"))
        .store(store.clone())
        .respond(Refusing);
    let inner = Recorder::default();
    let service = layer.layer(inner.clone());
    let (begun, mut waiting) = (Instant::now(), Vec::new());
    for number in 0..4 {
        let mut service = service.clone();
        waiting.push(Box::pin(service.ready().await.unwrap().call(number)));
    }
    let backlogs = || {
        [("fast", rules[0]), ("slow", rules[1])].map(|(name, rule)| {
            let policy = Policy::new(name);
            store.look(&policy, &rule, &Key::GLOBAL).reset_after()
        })
    };
    assert_eq!(backlogs(), [400, 1000].map(millis));
    for (dropped, left) in [(1, [400, 1000]), (2, [300, 750])] {
        drop(waiting.remove(dropped));
        assert_eq!(backlogs(), left.map(millis));
    }
    // 0 and 2 remain, and 2 keeps its delay.
    for answer in waiting {
        answer.await.unwrap();
    }
    let left = [(0, begun), (2, begun + millis(500))];
    assert_eq!(inner.left(), left);
    assert_eq!(layer.cancelled(), 2);
}

#[tokio::test(start_paused = true)]
async fn in_a_pair_a_position_is_freed_if_it_is_certainly_the_last() {
    let rule: AnyRule = "leaky-bucket 10/s queue=5 & token-bucket 100/1m"
        .parse()
        .unwrap();
    let setup = Setup::new(rule);
    setup.send(0).await.await.unwrap();
    sleep(millis(20)).await;
    let dropped = setup.send(1).await;
    drop_waiting(dropped).await;
    let next = setup.send(2).await;
    next.await.unwrap();
    assert_eq!(setup.left(), [(0, 0), (2, 100)]);
}

/// Runs a test in its own paused time.
fn paused<F: Future>(test: impl FnOnce() -> F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async { test().await })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(support::cases(100) as u32))]

    /// No more than sixteen of them lie between others, and so many places are remembered.
    #[test]
    fn thirty_two_requests_dropped_in_any_order_leave_the_queue_idle(
        order in Just((0..32).collect::<Vec<Number>>()).prop_shuffle(),
    ) {
        paused(|| async {
            let setup = Setup::new(LeakyBucket::per_second(10).queue(32));
            let first = setup.send(32).await;
            let mut waiting: Vec<_> = setup.send_all(0..32).await.into_iter().map(Some).collect();
            assert_eq!(setup.look().remaining(), Some(0));
            for number in order {
                drop_waiting(waiting[number].take().unwrap()).await;
            }
            first.await.unwrap();
            assert_eq!(setup.begun.elapsed(), Duration::ZERO);
            // Only the request that has just departed remains.
            assert_eq!(setup.look().reset_after(), millis(100));
            advance(millis(100)).await;
            assert_eq!(setup.look().remaining(), Some(33));
            setup.send(33).await.await.unwrap();
            assert_eq!(setup.left(), [(32, 0), (33, 100)]);
            assert_eq!((setup.cancelled)(), 32);
        });
    }

    /// For any arrivals and cancellations, the remaining requests depart in order, an interval
    /// apart, and no request waits for a free position.
    #[test]
    fn the_remaining_requests_depart_an_interval_apart(
        ops in prop::collection::vec((0..4_u8, any::<prop::sample::Index>(), 0..150_u64), 1..60),
    ) {
        paused(|| async {
            let setup = Setup::new(LeakyBucket::per_second(10).queue(6));
            let (mut sent, mut next) = (Vec::<(Number, JoinHandle<Answer>)>::new(), 0);
            let mut dropped = Vec::new();
            for (what, who, wait) in ops {
                match what {
                    0 | 1 => {
                        sent.push((next, setup.send(next).await));
                        next += 1;
                    }
                    2 => {
                        sent.retain(|(_, sent)| !sent.is_finished());
                        if !sent.is_empty() {
                            let (number, waiting) = sent.remove(who.index(sent.len()));
                            drop_waiting(waiting).await;
                            dropped.push(number);
                        }
                    }
                    _ => {
                        sleep(millis(wait)).await;
                        // A call that is due departs before it can be dropped.
                        tokio::task::yield_now().await;
                    }
                }
                // No request waits: the last departure was an interval ago, or the rest of that
                // interval is the backlog.
                if sent.iter().all(|(_, sent)| sent.is_finished()) {
                    let last = setup.inner.left().last().map(|(_, at)| *at);
                    let rest = last.map_or(Duration::ZERO, |at| millis(100).saturating_sub(at.elapsed()));
                    assert_eq!(setup.look().reset_after(), rest);
                }
            }
            for (_, sent) in sent {
                sent.await.unwrap();
            }
            let left = setup.left();
            for pair in left.windows(2) {
                assert!(pair[0].0 < pair[1].0 && pair[0].1 + 100 <= pair[1].1, "{left:?}");
            }
            assert!(left.iter().all(|(number, _)| !dropped.contains(number)));
        });
    }
}
