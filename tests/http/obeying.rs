//! A client that waits for `Retry-After`, and sends its request again, is admitted, whatever the
//! limits of a layer are and however they are charged. Without one, no wait helps.

use std::{cell::Cell, convert::Infallible, sync::Arc, time::Duration};

use futures_util::FutureExt;
use http::{Request, Response};
use support::Random;
use tokio::sync::Semaphore;
use tollgate::{
    AnyRule, BoxLimit, Cost, Limit, Outcome, Policy,
    key::{Global, Key, from_fn},
    prelude::*,
    time::ManualClock,
};
use tower::{Layer, ServiceExt, service_fn};

const RULES: [&str; 11] = [
    "token-bucket 100/1h",
    "token-bucket 1/1s",
    "token-bucket 10/1s burst=60 keep-free=20",
    "fixed-window 50/5m",
    "sliding-window 80/1m",
    "sliding-log 70/10m",
    "cascade 100/1h > 40/1m",
    "warm-up 200/1s over=10s cold=3",
    "warm-up 200/1s over=20h",
    "token-bucket 100/1h initial=200",
    "token-bucket 60/1m initial=20",
];

/// The longest time in which one of these rules has its full quota again, in seconds.
const LONGEST: u64 = 3600;

const COSTS: [u64; 5] = [1, 1, 7, 60, 101];

/// The body of a request that costs 1.
const SMALL: &str = "small";

/// Returns a random limit, and its text.
fn limit(random: &mut Random, number: usize) -> (BoxLimit<Request<String>, AnyRule>, String) {
    let mut any = |from: usize| random.below(from as u64) as usize;
    let (rule, cost) = (RULES[any(RULES.len())], COSTS[any(COSTS.len())]);
    let limit = Limit::new(rule.parse::<AnyRule>().unwrap())
        .key(Global)
        .cost(move |request: &Request<String>| match &**request.body() {
            SMALL => Cost::ONE,
            _ => Cost::new(cost).unwrap(),
        })
        .named(&format!("n{number}"));
    match any(5) {
        0 | 1 => (
            limit.charge_after(|_: &Response<String>| true).boxed(),
            format!("{rule} later, cost {cost}"),
        ),
        2 => (limit.dry_run().boxed(), format!("{rule} dry, cost {cost}")),
        _ => (limit.boxed(), format!("{rule}, cost {cost}")),
    }
}

#[tokio::test]
async fn a_client_that_waits_for_retry_after_is_admitted() {
    let (mut waits, mut nevers) = (0, 0);
    for seed in 0..support::cases(300).max(60) {
        let (mut random, clock) = (Random::new(seed), ManualClock::default());
        clock.advance(Duration::from_secs(1_800_000_000));
        let (limits, texts): (Vec<_>, Vec<_>) = (0..1 + random.below(3) as usize)
            .map(|number| limit(&mut random, number))
            .unzip();
        let names = limits.len();
        let blocks = LocalBuilder::new()
            .clock(clock.clone())
            .build()
            .with_blocks();
        let layer = RateLimitLayer::list(limits)
            .unwrap()
            .store(blocks.clone().boxed());
        let service = layer.layer(service_fn(async |_: Request<String>| {
            Ok::<_, Infallible>(Response::new(String::new()))
        }));
        let send = async |body: &str| {
            let service = service.clone();
            service
                .oneshot(Request::new(body.to_owned()))
                .await
                .unwrap()
        };
        for _ in 0..20 {
            let body = ["", SMALL][random.below(2) as usize];
            if random.below(6) == 0 {
                let policy = Policy::new(&format!("n{}", random.below(names as u64)));
                let span = Duration::from_secs(1 + random.below(30));
                let blocked = blocks.block::<AnyRule>(&policy, Key::GLOBAL, span).unwrap();
                let Ok(_) = blocked.at_once();
            }
            let answer = send(body).await;
            match (
                answer.status().as_u16(),
                answer.headers().get("retry-after"),
            ) {
                (200, _) => clock.advance(Duration::from_millis(random.below(3_000))),
                (status, Some(wait)) => {
                    waits += 1;
                    let wait = wait.to_str().unwrap().parse().unwrap();
                    assert!(wait <= LONGEST, "seed {seed}: {wait} s of {texts:?}");
                    clock.advance(Duration::from_secs(wait));
                    let again = send(body).await;
                    assert_eq!(
                        again.status(),
                        200,
                        "seed {seed}: {status}, {wait} s of {texts:?}: {again:?}"
                    );
                }
                (status, None) => {
                    nevers += 1;
                    for wait in [LONGEST, 100 * 24 * 60 * 60] {
                        clock.advance(Duration::from_secs(wait));
                        let again = send(body).await;
                        assert_eq!(again.status(), status, "seed {seed}: {wait} s of {texts:?}");
                    }
                }
            }
        }
    }
    assert!(waits > 100 && nevers > 10, "{waits}, {nevers}");
}

/// A new key begins with less than the call costs, but the bucket of a key that was charged fills
/// up.
#[tokio::test]
async fn a_bucket_that_begins_with_less_than_a_cost_has_a_wait_once_it_fills() {
    let clock = ManualClock::default();
    clock.advance(Duration::from_secs(1_800_000_000));
    let store = LocalBuilder::new().clock(clock.clone()).build();
    let layer = RateLimitLayer::new(TokenBucket::per_minute(60).initial(20))
        .cost(|request: &Request<u64>| Cost::new(*request.body()).unwrap())
        .charge_after(|_: &Response<String>| true)
        .store(store);
    let service = layer.layer(service_fn(async |_: Request<u64>| {
        Ok::<_, Infallible>(Response::new(String::new()))
    }));
    for (cost, status, wait) in [
        (50, 429, None),
        (10, 200, None),
        (50, 429, Some(50)),
        (50, 200, None),
    ] {
        let answer = service.clone().oneshot(Request::new(cost)).await.unwrap();
        let after = answer.headers().get("retry-after");
        let after = after.map(|after| after.to_str().unwrap().parse().unwrap());
        assert_eq!((answer.status().as_u16(), after), (status, wait), "{cost}");
        clock.advance(Duration::from_secs(after.unwrap_or(0)));
    }
}

/// Sends several requests, lets all of them out of the handler at once, and one of those that are
/// refused by then obeys.
#[tokio::test]
async fn a_client_that_is_refused_after_its_handler_waits_for_all_limits() {
    let (mut waits, mut beside) = (0, 0);
    for seed in 0..support::cases(200).max(60) {
        let (mut random, clock) = (Random::new(seed), ManualClock::default());
        clock.advance(Duration::from_secs(1_800_000_000));
        let (mut limits, mut texts): (Vec<_>, Vec<_>) = (0..2 + random.below(2) as usize)
            .map(|number| limit(&mut random, number))
            .unzip();
        if random.below(2) == 0 {
            // Each request holds the one unit of a key of its own.
            let text = "in-flight 1 retry-after=5h";
            let limit = Limit::new(text.parse::<AnyRule>().unwrap())
                .key(from_fn(|request: &Request<String>| {
                    Some(request.body().clone())
                }))
                .named("own");
            limits.push(limit.boxed());
            texts.push(text.to_owned());
        }
        let enforced = texts.iter().filter(|text| !text.contains(" dry")).count();
        let layer = RateLimitLayer::list(limits)
            .unwrap()
            .store(LocalBuilder::new().clock(clock.clone()).build().boxed());
        let gate = Arc::new(Semaphore::new(0));
        let opened = Arc::clone(&gate);
        let service = layer.layer(service_fn(move |_: Request<String>| {
            let gate = Arc::clone(&opened);
            async move {
                drop(gate.acquire().await.unwrap());
                Ok::<_, Infallible>(Response::new(String::new()))
            }
        }));
        let sent = Cell::new(0_u32);
        let send = || {
            sent.set(sent.get() + 1);
            service
                .clone()
                .oneshot(Request::new(sent.get().to_string()))
        };
        for _ in 0..5 {
            let mut calls: Vec<_> = (0..1 + random.below(120))
                .map(|_| Box::pin(send()))
                .collect();
            calls.retain_mut(|call| call.now_or_never().is_none());
            gate.add_permits(1_000);
            let mut answers = Vec::new();
            for call in calls {
                let answer = call.await.unwrap();
                if answer.status() != 200 {
                    answers.push(answer);
                }
            }
            if answers.is_empty() {
                clock.advance(Duration::from_millis(random.below(3_000)));
            } else {
                let one = &answers[random.below(answers.len() as u64) as usize];
                let outcome: &Outcome = one.extensions().get().unwrap();
                assert_eq!(outcome.len(), enforced, "seed {seed}: {texts:?}");
                beside += usize::from(outcome.refusals().count() > 1);
                if let Some(wait) = one.headers().get("retry-after") {
                    waits += 1;
                    let wait = wait.to_str().unwrap().parse().unwrap();
                    assert!(wait <= LONGEST, "seed {seed}: {wait} s of {texts:?}");
                    clock.advance(Duration::from_secs(wait));
                    let again = send().await.unwrap();
                    assert_eq!(
                        again.status(),
                        200,
                        "seed {seed}: {wait} s of {texts:?}: {again:?}"
                    );
                }
            }
            gate.forget_permits(1_000);
        }
    }
    assert!(waits > 5 && beside > 1, "{waits}, {beside}");
}
