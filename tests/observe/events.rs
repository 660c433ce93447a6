//! Every event is reported exactly once, for every kind of request, with every kind of store.

use std::{pin::pin, sync::Arc};

use futures_util::poll;
use http::StatusCode;
use tollgate::{
    observe::{EventCounters, EventCounts},
    store::FailureMode,
    testing::Fault,
};
use tower::ServiceExt;

use crate::{
    requests::{PLACES, Place, request, send, service, store},
    seen::Seen,
};

const OK: StatusCode = StatusCode::OK;
const TOO_MANY: StatusCode = StatusCode::TOO_MANY_REQUESTS;

/// The limits, the headers of each request with the expected status, and all expected events in
/// order.
type Case<'a> = (
    &'a [&'a str],
    &'a [(&'a str, &'a str, StatusCode)],
    &'a [&'a str],
);

const CASES: [Case<'static>; 13] = [
    (
        &["token-bucket 2/1h"],
        &[("alice", "-", OK), ("bob", "-", OK), ("alice", "-", OK)],
        &[
            "admitted one alice",
            "admitted one bob",
            "admitted one alice",
        ],
    ),
    (
        &["token-bucket 2/1h", "token-bucket 3/1h"],
        &[("alice", "bob", OK)],
        &["admitted one alice", "admitted two bob"],
    ),
    (
        &["token-bucket 1/1h"],
        &[
            ("alice", "-", OK),
            ("alice", "-", TOO_MANY),
            ("alice", "-", TOO_MANY),
        ],
        &[
            "admitted one alice",
            "refused one alice",
            "refused one alice",
        ],
    ),
    // The second of two limits refuses: the first one spends nothing and has no event.
    (
        &["token-bucket 2/1h", "token-bucket 1/1h"],
        &[
            ("alice", "bob", OK),
            ("alice", "bob", TOO_MANY),
            ("alice", "alice", OK),
        ],
        &[
            "admitted one alice",
            "admitted two bob",
            "refused two bob",
            "admitted one alice",
            "admitted two alice",
        ],
    ),
    // The first of two limits refuses.
    (
        &["token-bucket 1/1h", "token-bucket 2/1h"],
        &[("alice", "bob", OK), ("alice", "bob", TOO_MANY)],
        &[
            "admitted one alice",
            "admitted two bob",
            "refused one alice",
        ],
    ),
    // Both refuse.
    (
        &["token-bucket 1/1h", "token-bucket 1/1h"],
        &[("alice", "bob", OK), ("alice", "bob", TOO_MANY)],
        &[
            "admitted one alice",
            "admitted two bob",
            "refused one alice",
            "refused two bob",
        ],
    ),
    (
        &["leaky-bucket 1/10s queue=2"],
        &[("alice", "-", OK), ("bob", "-", OK)],
        &["admitted one alice", "admitted one bob"],
    ),
    // One of two limits would delay, the other one refuses.
    (
        &["leaky-bucket 1/10s queue=2", "token-bucket 1/1h"],
        &[("alice", "bob", OK), ("alice", "bob", TOO_MANY)],
        &["admitted one alice", "admitted two bob", "refused two bob"],
    ),
    (
        &["token-bucket 1/1h"],
        &[("exempt", "-", OK), ("exempt", "-", OK)],
        &["exempt", "exempt"],
    ),
    // One limit of two has an exemption: the other one decides.
    (
        &["token-bucket 1/1h", "token-bucket 1/1h"],
        &[
            ("exempt", "bob", OK),
            ("alice", "exempt", OK),
            ("exempt", "exempt", OK),
        ],
        &["admitted two bob", "admitted one alice", "exempt"],
    ),
    (
        &["token-bucket 1/1h"],
        &[
            ("-", "-", StatusCode::BAD_REQUEST),
            ("mistake", "-", StatusCode::INTERNAL_SERVER_ERROR),
        ],
        &["missing client", "missing server"],
    ),
    // Without one of two keys nothing is asked.
    (
        &["token-bucket 1/1h", "token-bucket 1/1h"],
        &[
            ("alice", "-", StatusCode::BAD_REQUEST),
            ("-", "bob", StatusCode::BAD_REQUEST),
        ],
        &["missing client", "missing client"],
    ),
    (
        &["token-bucket 1/1h", "token-bucket 1/1h"],
        &[
            ("alice", "mistake", StatusCode::INTERNAL_SERVER_ERROR),
            ("alice", "bob", OK),
        ],
        &["missing server", "admitted one alice", "admitted two bob"],
    ),
];

#[tokio::test(start_paused = true)]
async fn each_decision_is_one_event() {
    for (rules, requests, expected) in CASES {
        for place in PLACES {
            let (seen, counters) = (Seen::default(), EventCounters::new());
            let observer = (seen.clone(), Arc::new(counters.clone()));
            let service = service(rules, store(place, FailureMode::Closed).0, observer);
            for (one, two, status) in requests {
                let found = send(&service, one, two).await;
                assert_eq!(found, *status, "{rules:?} {place:?} {one} {two}");
            }
            assert_eq!(seen.take(), expected, "{rules:?} {place:?}");
            assert_eq!(counters.snapshot(), tally(expected), "{rules:?} {place:?}");
        }
    }
}

/// Counts events by their first word.
fn tally(events: &[&str]) -> EventCounts {
    let of = |name: &str| {
        events
            .iter()
            .filter(|event| event.starts_with(name))
            .count() as u64
    };
    let mut counts = EventCounts::default();
    counts.admitted = of("admitted");
    counts.delayed = of("delayed");
    counts.refused = of("refused");
    counts.exempt = of("exempt");
    counts.missing_key = of("missing");
    counts.settled = of("settled");
    counts
}

#[tokio::test(start_paused = true)]
async fn a_delayed_request_is_reported_once_with_its_delay() {
    for place in PLACES {
        let seen = Seen::default();
        let (store, _) = store(place, FailureMode::Closed);
        let rules = ["leaky-bucket 1/10s queue=2", "token-bucket 9/1h"];
        let service = service(&rules, store, seen.clone());
        let statuses = tokio::join!(
            send(&service, "alice", "bob"),
            send(&service, "alice", "bob"),
            send(&service, "alice", "bob"),
            send(&service, "alice", "bob"),
        );
        assert_eq!(statuses, (OK, OK, OK, TOO_MANY), "{place:?}");
        let mut expected = [
            "admitted one alice",
            "admitted two bob",
            "delayed one alice 10s",
            "admitted two bob",
            "delayed one alice 20s",
            "admitted two bob",
            "refused one alice",
        ];
        let mut events = seen.take();
        // A remote store answers them in any order.
        if place == Place::Remote {
            events.sort();
            expected.sort();
        }
        assert_eq!(events, expected, "{place:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_dropped_while_it_is_delayed_is_settled_by_each_limit() {
    let cases: [(&[&str], &[&str]); 2] = [
        (
            &["leaky-bucket 1/10s queue=2"],
            &[
                "admitted one alice",
                "delayed one alice 10s",
                "settled one alice 1 0",
            ],
        ),
        (
            &["leaky-bucket 1/10s queue=2", "token-bucket 9/1h"],
            &[
                "admitted one alice",
                "admitted two bob",
                "delayed one alice 10s",
                "admitted two bob",
                "settled one alice 1 0",
                "settled two bob 1 0",
            ],
        ),
    ];
    for (rules, expected) in cases {
        for place in PLACES {
            let (seen, counters) = (Seen::default(), EventCounters::new());
            let (store, _) = store(place, FailureMode::Closed);
            let service = service(rules, store, (seen.clone(), counters.clone()));
            assert_eq!(send(&service, "alice", "bob").await, OK);
            {
                let mut call = pin!(service.clone().oneshot(request("alice", "bob")));
                for _ in 0..9 {
                    assert!(poll!(call.as_mut()).is_pending(), "{place:?}");
                }
            }
            assert_eq!(seen.take(), expected, "{place:?}");
            assert_eq!(counters.snapshot(), tally(expected), "{place:?}");
        }
    }
}

/// The store failed, at once or late; its answer is `undecided`.
#[tokio::test(start_paused = true)]
async fn what_a_store_cannot_decide_is_reported_as_undecided() {
    let one: &[&str] = &["token-bucket 1/1h"];
    let two: &[&str] = &["token-bucket 1/1h", "token-bucket 1/1h"];
    for (mode, status, word) in [
        (FailureMode::Open, OK, "proceeds"),
        (
            FailureMode::Closed,
            StatusCode::SERVICE_UNAVAILABLE,
            "refused",
        ),
    ] {
        for fault in [Fault::Unavailable, Fault::Contended, Fault::Lost] {
            for rules in [one, two] {
                let (seen, counters) = (Seen::default(), EventCounters::new());
                let (store, faults) = store(Place::Remote, mode);
                faults.script([Some(fault)]);
                let service = service(rules, store, (seen.clone(), counters.clone()));
                assert_eq!(send(&service, "alice", "bob").await, status);

                let mut expected = vec![format!("undecided one alice {word}")];
                if rules.len() == 2 {
                    expected.push(format!("undecided two bob {word}"));
                }
                assert_eq!(seen.take(), expected, "{fault:?}");
                let counts = counters.snapshot();
                let undecided = (counts.undecided_admitted, counts.undecided_refused);
                let count = rules.len() as u64;
                let expected = if mode == FailureMode::Open {
                    (count, 0)
                } else {
                    (0, count)
                };
                assert_eq!(undecided, expected, "{fault:?}");
                assert_eq!(counts.decisions(), count, "{fault:?}");
            }
        }
    }
}

/// A request that is dropped while the store is asked was not decided, and one that is dropped
/// unpolled neither.
#[tokio::test(start_paused = true)]
async fn a_request_that_is_dropped_before_the_decision_has_no_event() {
    let seen = Seen::default();
    let (store, faults) = store(Place::Remote, FailureMode::Closed);
    faults.always(Fault::Held);
    let service = service(&["token-bucket 1/1h"], store, seen.clone());
    drop(service.clone().oneshot(request("alice", "-")));
    {
        let mut call = pin!(service.clone().oneshot(request("alice", "-")));
        for _ in 0..9 {
            assert!(poll!(call.as_mut()).is_pending());
        }
    }
    faults.release();
    assert!(seen.take().is_empty());
}

/// All observers of a layer get every event, in the order in which they were given.
#[tokio::test(start_paused = true)]
async fn every_observer_gets_every_event() {
    let [first, second] = [Seen::default(), Seen::default()];
    let store = store(Place::Memory, FailureMode::Closed).0;
    let service = service(
        &["token-bucket 1/1h"],
        store,
        (first.clone(), second.clone()),
    );
    for _ in 0..3 {
        send(&service, "alice", "-").await;
    }
    let events = first.take();
    assert_eq!(events.len(), 3);
    assert_eq!(events, second.take());
}
