//! Look-ups in flight: shared, bounded in time, and independent of the request that started them.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::{FutureExt, TryFutureExt};
use tokio::{sync::Semaphore, task::JoinSet};
use tollgate::{
    Timestamp,
    key::introspect::{Claims, Introspect, LookUp, Token},
    time::Clock,
};
use tower::{BoxError, Layer, ServiceExt, limit::ConcurrencyLimit, load_shed::LoadShed};

use crate::introspect::subject::{Echo, around, ask, with_token};

/// Look-ups that wait for a permit each. Counts those that began.
pub(crate) fn gated() -> (impl LookUp, Arc<Semaphore>, Arc<AtomicU64>) {
    let (gate, begun) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicU64::new(0)));
    let (permits, count) = (Arc::clone(&gate), Arc::clone(&begun));
    let look_up = move |token: Token| {
        let permits = Arc::clone(&permits);
        count.fetch_add(1, Ordering::SeqCst);
        async move {
            permits.acquire().await?.forget();
            let active = !token.expose().starts_with("bad");
            Ok(active.then(|| Claims::new().with_subject(token.expose())))
        }
    };
    (look_up, gate, begun)
}

/// Lets all other tasks run until they wait.
pub(crate) async fn settle() {
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "current_thread")]
async fn concurrent_requests_share_one_look_up_for_each_token() {
    for failing in [false, true] {
        let (look_up, gate, begun) = gated();
        let layer = Introspect::new(look_up);
        let subject = around(&layer);
        let mut requests = JoinSet::new();
        for _ in 0..64 {
            for token in ["ann", "bad"] {
                let subject = subject.clone();
                requests.spawn(async move { (token, ask(&subject, token).await) });
            }
        }
        settle().await;
        assert_eq!(begun.load(Ordering::SeqCst), 2);
        let stats = layer.stats();
        assert_eq!((stats.lookups, stats.shared, stats.in_flight), (2, 126, 2));
        if failing {
            gate.close();
        } else {
            gate.add_permits(2);
        }
        for (token, answer) in requests.join_all().await {
            let expected = match (failing, token) {
                (true, _) => "503",
                (false, "bad") => "401",
                (false, _) => "ann",
            };
            assert_eq!(answer, expected);
        }
        // Nobody repeated what failed.
        let stats = layer.stats();
        assert_eq!((stats.lookups, stats.in_flight), (2, 0));
        assert_eq!(stats.failed, if failing { 2 } else { 0 });
        assert_eq!(stats.unavailable, if failing { 128 } else { 0 });
    }
}

/// On several threads, where requests come while a look-up ends: never two at a time, and one in
/// all.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn racing_requests_share_one_look_up() {
    for round in 0..200 {
        let count = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&count);
        let layer = Introspect::new(move |_: Token| {
            counted.fetch_add(1, Ordering::SeqCst);
            async { Ok(Some(Claims::new().with_subject("ann"))) }
        });
        let subject = around(&layer);
        let mut requests = JoinSet::new();
        for _ in 0..64 {
            let subject = subject.clone();
            requests.spawn(async move { ask(&subject, "t").await });
        }
        assert!(
            requests
                .join_all()
                .await
                .iter()
                .all(|answer| answer == "ann")
        );
        assert_eq!(count.load(Ordering::SeqCst), 1, "round {round}");
        let stats = layer.stats();
        assert_eq!(stats.hits + stats.shared + stats.lookups, 64, "{stats:?}");
        assert_eq!(stats.in_flight, 0);
    }
}

/// A clock that runs a function once, when it is read.
#[derive(Clone, Default)]
struct Hooked(Arc<Mutex<Option<Hook>>>);

type Hook = Box<dyn FnOnce() + Send>;

impl Clock for Hooked {
    fn now(&self) -> Timestamp {
        let hook = self.0.lock().unwrap().take();
        if let Some(hook) = hook {
            hook();
        }
        Timestamp::from_nanos(1_767_225_600_000_000_000)
    }
}

/// The time is read after the cache, so the whole look-up of the other request is between that and
/// the lock.
#[tokio::test(flavor = "current_thread")]
async fn a_look_up_that_ends_while_another_request_begins_is_not_repeated() {
    let clock = Hooked::default();
    let look_up = async |_: Token| -> Result<Option<Claims>, BoxError> {
        Ok(Some(Claims::new().with_subject("ann")))
    };
    let layer = Introspect::builder(look_up)
        .clock(clock.clone())
        .build()
        .unwrap();
    let subject = around(&layer);
    let other = subject.clone();
    *clock.0.lock().unwrap() = Some(Box::new(move || {
        let other = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.unwrap().block_on(ask(&other, "t"))
        });
        assert_eq!(other.join().unwrap(), "ann");
    }));
    assert_eq!(ask(&subject, "t").await, "ann");
    let stats = layer.stats();
    assert_eq!((stats.lookups, stats.hits), (1, 1));
}

#[tokio::test(flavor = "current_thread")]
async fn a_dropped_request_strands_no_other_and_its_look_up_is_kept() {
    let (look_up, gate, begun) = gated();
    let layer = Introspect::new(look_up);
    let subject = around(&layer);
    let first = tokio::spawn({
        let subject = subject.clone();
        async move { ask(&subject, "ann").await }
    });
    settle().await;
    let second = tokio::spawn({
        let subject = subject.clone();
        async move { ask(&subject, "ann").await }
    });
    settle().await;
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    gate.add_permits(1);
    assert_eq!(second.await.unwrap(), "ann");

    // Also if nobody else waits.
    let mut only = Box::pin(subject.clone().oneshot(with_token("bob")));
    assert!(futures_util::poll!(&mut only).is_pending());
    drop(only);
    gate.add_permits(1);
    settle().await;
    assert_eq!(ask(&subject, "bob").await, "bob");
    assert_eq!(begun.load(Ordering::SeqCst), 2);
    assert_eq!(layer.stats().hits, 1);
}

/// A request that waits for its look-up takes no place of the inner service, and waits for one
/// afterwards.
#[tokio::test(flavor = "current_thread")]
async fn a_look_up_holds_no_capacity_of_the_inner_service() {
    let (look_up, gate, _) = gated();
    let layer = Introspect::new(look_up);
    let limited = ConcurrencyLimit::new(Echo, 1);
    let subject = layer.layer(limited.clone());
    let shedding = layer.layer(LoadShed::new(limited.clone()));
    gate.add_permits(1);
    let known = subject.clone().oneshot(with_token("ann")).await;
    assert_eq!(known.unwrap().body(), "ann");

    let mut waiting = JoinSet::new();
    for n in 0..64 {
        let invented = with_token(if n % 2 == 0 { "bad" } else { "bob" });
        match n % 4 {
            0 | 1 => waiting.spawn(subject.clone().oneshot(invented).map_err(BoxError::from)),
            _ => waiting.spawn(shedding.clone().oneshot(invented)),
        };
    }
    settle().await;
    let known = subject.clone().oneshot(with_token("ann")).now_or_never();
    assert_eq!(known.unwrap().unwrap().body(), "ann");
    let known = shedding.clone().oneshot(with_token("ann")).now_or_never();
    assert_eq!(known.unwrap().unwrap().body(), "ann");

    // The only place is taken when the look-ups end.
    let mut other = limited.clone();
    let other = other.ready().await.unwrap();
    gate.add_permits(2);
    settle().await;
    let mut statuses = Vec::new();
    while let Some(answer) = waiting.try_join_next() {
        statuses.push(
            answer
                .unwrap()
                .ok()
                .map(|response| response.status().as_u16()),
        );
    }
    statuses.sort_unstable();
    let expected = [vec![None; 16], vec![Some(401); 32]].concat();
    assert_eq!(statuses, expected, "shed, or refused");
    assert_eq!(waiting.len(), 16);
    // Gives its place back.
    *other = limited.clone();
    for answer in waiting.join_all().await {
        assert_eq!(answer.unwrap().body(), "bob");
    }
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_look_up_ends_at_the_deadline_for_all_who_wait() {
    let (look_up, gate, _) = gated();
    let deadline = Duration::from_millis(700);
    let layer = Introspect::builder(look_up)
        .deadline(deadline)
        .build()
        .unwrap();
    let subject = around(&layer);
    let began = tokio::time::Instant::now();
    let mut requests = JoinSet::new();
    for _ in 0..10 {
        let subject = subject.clone();
        requests.spawn(async move { ask(&subject, "ann").await });
    }
    assert_eq!(requests.join_all().await, ["503"; 10]);
    // Time is paused: it moves by timers alone.
    assert_eq!(began.elapsed(), deadline);
    let stats = layer.stats();
    assert_eq!((stats.timeouts, stats.failed, stats.in_flight), (1, 1, 0));
    // An unknown token is tried again at once.
    gate.add_permits(1);
    assert_eq!(ask(&subject, "ann").await, "ann");
}

#[tokio::test(flavor = "current_thread")]
async fn a_look_up_that_panics_is_a_failed_one() {
    let look_up = |token: Token| async move {
        assert!(token.expose() != "ann", "a fault of the function");
        Ok::<_, BoxError>(None)
    };
    let layer = Introspect::new(look_up);
    let subject = around(&layer);
    for _ in 0..3 {
        assert_eq!(ask(&subject, "ann").await, "503");
    }
    assert_eq!(ask(&subject, "bob").await, "401");
    let stats = layer.stats();
    assert_eq!((stats.aborted, stats.failed, stats.in_flight), (3, 3, 0));
    // It is no outage: the token may have caused it.
    let layer = Introspect::builder(look_up).fail_open().build().unwrap();
    assert_eq!(ask(&around(&layer), "ann").await, "503");
}

#[test]
fn without_a_runtime_it_is_a_failed_look_up() {
    let layer = Introspect::new(async |_: Token| -> Result<Option<Claims>, BoxError> { Ok(None) });
    let subject = around(&layer);
    let answer = futures_util::FutureExt::now_or_never(ask(&subject, "ann"));
    assert_eq!(answer.unwrap(), "503");
    assert_eq!(layer.stats().failed, 1);
}

/// The runtime drops a task at once that is spawned after its end.
#[test]
fn a_runtime_that_has_shut_down_is_a_failed_look_up() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let handle = runtime.handle().clone();
    runtime.shutdown_background();
    let layer = Introspect::new(async |_: Token| -> Result<Option<Claims>, BoxError> { Ok(None) });
    let subject = around(&layer);
    let (sender, answer) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let _entered = handle.enter();
        let answers = [(); 2].map(|()| futures_util::FutureExt::now_or_never(ask(&subject, "ann")));
        let _ = sender.send(answers);
    });
    // A bound for a thread that hangs.
    let answers = answer.recv_timeout(Duration::from_secs(10)).unwrap();
    assert_eq!(answers.map(Option::unwrap), ["503", "503"]);
    let stats = layer.stats();
    assert_eq!((stats.failed, stats.aborted, stats.in_flight), (2, 2, 0));
}
