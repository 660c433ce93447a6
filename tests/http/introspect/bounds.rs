//! Floods of invented tokens: bounds on memory and look-ups, and the clients that are not affected.

use std::{sync::atomic::Ordering, time::Duration};

use support::counting::bytes_kept;
use tollgate::{
    TokenBucket,
    key::introspect::{Claims, Introspect, Token},
    time::{Clock, ManualClock},
};
use tower::{BoxError, Service, ServiceExt};

use crate::introspect::{
    flights::{gated, settle},
    subject::{around, ask, with_token},
};

async fn known_by_prefix(token: Token) -> Result<Option<Claims>, BoxError> {
    let active = token.expose().starts_with("good");
    Ok(active.then(|| Claims::new().with_subject(token.expose())))
}

/// A quick run invents fewer, which are still many times the capacity.
#[tokio::test(flavor = "current_thread")]
async fn a_hundred_thousand_invented_tokens_evict_no_good_one_and_stay_within_the_capacity() {
    let clock = ManualClock::default();
    let layer = Introspect::builder(known_by_prefix)
        .capacity(1_000)
        .max_rate(TokenBucket::per_second(1_000_000))
        .clock(clock.clone())
        .build()
        .unwrap();
    let subject = around(&layer);
    for good in 0..100 {
        ask(&subject, &format!("good{good}")).await;
    }
    for invented in 0..support::cases(100_000).max(15_000) {
        assert_eq!(ask(&subject, &format!("invented{invented}")).await, "401");
    }
    let stats = layer.stats();
    assert_eq!(stats.cached, 100);
    // The cache has parts, each of which rounds its share up.
    assert!((1..=1_100).contains(&stats.cached_inactive), "{stats:?}");
    assert_eq!(stats.in_flight, 0);
    for good in 0..100 {
        let token = format!("good{good}");
        assert_eq!(ask(&subject, &token).await, token);
    }
    assert_eq!(layer.stats().lookups, stats.lookups, "all from the cache");
}

#[tokio::test(flavor = "current_thread")]
async fn active_tokens_are_bounded_too() {
    let layer = Introspect::builder(known_by_prefix)
        .capacity(500)
        .max_rate(TokenBucket::per_second(1_000_000))
        .build()
        .unwrap();
    let subject = around(&layer);
    for good in 0..4_000 {
        let token = format!("good{good}");
        assert_eq!(ask(&subject, &token).await, token);
    }
    assert!(
        (1..=600).contains(&layer.stats().cached),
        "{:?}",
        layer.stats()
    );
}

#[tokio::test(flavor = "current_thread")]
async fn look_ups_in_flight_are_bounded_and_a_flood_does_not_keep_known_tokens_from_renewal() {
    let clock = ManualClock::default();
    let (look_up, gate, begun) = gated();
    let layer = Introspect::builder(look_up)
        .max_lookups(8)
        .max_age(Duration::from_secs(60))
        .clock(clock.clone())
        .build()
        .unwrap();
    let mut subject = around(&layer);
    gate.add_permits(1);
    assert_eq!(ask(&subject, "ann").await, "ann");
    clock.advance(Duration::from_secs(61));

    let mut waiting = Vec::new();
    for invented in 0..1_000 {
        let token = format!("bad{invented}");
        let mut response = Box::pin(subject.ready().await.unwrap().call(with_token(&token)));
        match futures_util::poll!(&mut response) {
            std::task::Poll::Pending => waiting.push(response),
            std::task::Poll::Ready(response) => {
                let response = response.unwrap();
                assert_eq!(response.status(), 503);
                assert_eq!(response.headers()["retry-after"], "1");
            }
        }
    }
    settle().await;
    assert_eq!((waiting.len(), begun.load(Ordering::SeqCst)), (8, 1 + 8));
    let stats = layer.stats();
    assert_eq!(
        (stats.crowded, stats.unavailable, stats.in_flight),
        (992, 992, 8)
    );

    // A token that was active has room of its own.
    let renewal = tokio::spawn({
        let subject = subject.clone();
        async move { ask(&subject, "ann").await }
    });
    settle().await;
    assert_eq!(layer.stats().in_flight, 9);
    gate.add_permits(9);
    assert_eq!(renewal.await.unwrap(), "ann");
    for response in waiting {
        assert_eq!(response.await.unwrap().status(), 401);
    }
    // There is room again.
    gate.add_permits(1);
    assert_eq!(ask(&subject, "bob").await, "bob");
}

/// Too many look-ups are no outage, which anybody could make: invented tokens do not pass, whatever
/// is chosen for outages. Those that were active are good for one `max_age` more.
#[tokio::test(flavor = "current_thread")]
async fn a_flood_opens_no_gate() {
    for open in [false, true] {
        let clock = ManualClock::default();
        let (look_up, gate, _) = gated();
        let builder = Introspect::builder(look_up)
            .max_lookups(8)
            .max_age(Duration::from_secs(60))
            .clock(clock.clone());
        let builder = if open { builder.fail_open() } else { builder };
        let layer = builder.build().unwrap();
        let subject = around(&layer);
        let known: Vec<_> = (0..20).map(|n| format!("ann{n}")).collect();
        for token in &known {
            gate.add_permits(1);
            assert_eq!(ask(&subject, token).await, *token);
        }
        clock.advance(Duration::from_secs(60));
        // All room of both kinds is taken.
        let mut waiting = tokio::task::JoinSet::new();
        for token in known[..8]
            .iter()
            .cloned()
            .chain((0..8).map(|n| format!("bad{n}")))
        {
            let subject = subject.clone();
            waiting.spawn(async move { ask(&subject, &token).await });
        }
        settle().await;
        for invented in 0..100 {
            assert_eq!(ask(&subject, &format!("bad1{invented}")).await, "503");
        }
        for token in &known[8..] {
            assert_eq!(ask(&subject, token).await, format!("{token} stale"));
        }
        clock.advance(Duration::from_secs(60));
        assert_eq!(ask(&subject, &known[9]).await, "503", "two ages are over");
        let stats = layer.stats();
        assert_eq!((stats.crowded, stats.stale), (113, 12));
        assert_eq!((stats.unavailable, stats.unchecked), (101, 0));
        gate.add_permits(100);
        while waiting.join_next().await.is_some() {}
    }
}

/// Many renewals at once are no outage either, so `serve_stale` prolongs no token; before, it did.
/// In an outage it does, also for tokens that are not looked up because those that fail take all
/// the room.
#[tokio::test(flavor = "current_thread")]
async fn stale_answers_are_for_outages() {
    for outage in [false, true] {
        let clock = ManualClock::default();
        let (look_up, gate, _) = gated();
        let layer = Introspect::builder(look_up)
            .max_lookups(8)
            .max_age(Duration::from_secs(60))
            .serve_stale(Duration::from_secs(600))
            .deadline(Duration::from_secs(86_400))
            .clock(clock.clone())
            .build()
            .unwrap();
        let subject = around(&layer);
        let known: Vec<_> = (0..20).map(|n| format!("ann{n}")).collect();
        for token in &known {
            gate.add_permits(1);
            assert_eq!(ask(&subject, token).await, *token);
        }
        clock.advance(Duration::from_secs(60));
        if outage {
            // The server is silent until the deadline.
            tokio::time::pause();
            assert_eq!(ask(&subject, &known[19]).await, "ann19 stale");
            tokio::time::resume();
        }
        let mut waiting = tokio::task::JoinSet::new();
        for token in &known[..8] {
            let (subject, token) = (subject.clone(), token.clone());
            waiting.spawn(async move { ask(&subject, &token).await });
        }
        settle().await;
        for (seconds, crowded, in_outage) in [
            (59, "ann8 stale", "ann8 stale"),
            (1, "503", "ann8 stale"),
            (539, "503", "ann8 stale"),
            (1, "503", "503"),
        ] {
            clock.advance(Duration::from_secs(seconds));
            let expected = if outage { in_outage } else { crowded };
            assert_eq!(ask(&subject, &known[8]).await, expected);
        }
        gate.add_permits(100);
        while waiting.join_next().await.is_some() {}
    }
}

#[tokio::test(flavor = "current_thread")]
async fn look_ups_of_unknown_tokens_have_a_rate() {
    let clock = ManualClock::default();
    let layer = Introspect::builder(known_by_prefix)
        .max_rate(TokenBucket::per_second(10))
        .max_age(Duration::from_secs(1))
        .clock(clock.clone())
        .build()
        .unwrap();
    let subject = around(&layer);
    assert_eq!(ask(&subject, "good").await, "good");
    // The oracle: ten a second, the first of which is spent; none is saved up.
    let mut left = 9;
    for second in 0..50 {
        for request in 0..40 {
            let answer = ask(&subject, &format!("{second}.{request}")).await;
            let expected = if left > 0 { "401" } else { "503" };
            left = u64::saturating_sub(left, 1);
            assert_eq!(answer, expected, "{second}.{request}");
        }
        // Renewals do not count.
        assert_eq!(ask(&subject, "good").await, "good");
        clock.advance(Duration::from_secs(1));
        left = 10;
    }
    let stats = layer.stats();
    assert_eq!(stats.crowded, 50 * 40 - 9 - 49 * 10);
    let _ = clock.now();
}

/// The documentation of `capacity` names the bytes of a token.
#[test]
fn a_token_takes_the_documented_memory() {
    const CAPACITY: usize = 1_000;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    for (prefix, documented) in [("good", 500), ("bad", 350)] {
        let layer = Introspect::builder(known_by_prefix)
            .capacity(CAPACITY)
            .max_rate(TokenBucket::per_second(1_000_000))
            .build()
            .unwrap();
        let subject = around(&layer);
        let flood = |numbers: std::ops::Range<usize>| {
            runtime.block_on(async {
                for number in numbers {
                    ask(&subject, &format!("{prefix}{number:06}")).await;
                }
            });
        };
        let (kept, ()) = bytes_kept(|| flood(0..4_000));
        let each = kept / CAPACITY as i64;
        assert!((100..=documented).contains(&each), "{prefix}: {each} bytes");
        let (more, ()) = bytes_kept(|| flood(4_000..8_000));
        assert!(more.abs() <= kept / 10, "{prefix}: {more} bytes more");
    }
}
