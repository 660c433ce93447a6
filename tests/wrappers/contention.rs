//! A store that lost every race: neither a refusal nor an outage, with a policy of its own.

use std::{convert::Infallible, time::Duration};

use http::{Request, Response, StatusCode};
use tollgate::{
    Decision, RateLimitLayer, TokenBucket,
    key::Key,
    respond::Http,
    store::{FailureMode, Store, StoreExt},
};
use tonic_types::StatusExt;
use tower::{Layer, ServiceExt, service_fn};

use crate::{
    fakes::{Asked, Bucket, Fault, Kind, local},
    fall_back::{DOWN, set},
};

const CONTENDED: [Fault; 2] = [
    Fault::Fails(Kind::Contended),
    Fault::FailsAtOnce(Kind::Contended),
];

const WAIT: Duration = Duration::from_millis(1500);

/// Each policy, whether it admits a request, and its `retry_after`.
const CHOICES: [(FailureMode, bool, Option<Duration>); 3] = [
    (FailureMode::Open, true, None),
    (FailureMode::Closed, false, None),
    (FailureMode::RetryAfter(WAIT), false, Some(WAIT)),
];

fn check(decision: &Decision, admitted: bool, retry_after: Option<Duration>) {
    assert!(decision.is_undecided());
    assert_eq!(
        (decision.is_admitted(), decision.retry_after()),
        (admitted, retry_after)
    );
    assert_eq!(
        (decision.limit(), { *decision }.take_charge()),
        (None, None)
    );
}

#[tokio::test(start_paused = true)]
async fn without_a_policy_contention_is_answered_like_a_failure_and_counted_separately() {
    let asked = Asked::of(TokenBucket::per_hour(10));
    for fault in CONTENDED {
        let remote = Bucket::new();
        remote.usually(fault);
        for (store, admitted) in [
            (remote.clone().fail_open(), true),
            (remote.clone().fail_closed(), false),
        ] {
            check(
                &asked.acquire(&store, "a", 1).await.unwrap(),
                admitted,
                None,
            );
            check(&asked.look(&store, "a").await.unwrap(), admitted, None);
            let Ok(()) = store.reset(&asked.policy, &Key::from("a")).await;
            let charged = asked.acquire(&remote.local, "a", 1).await.unwrap();
            let Ok(()) = store.settle(vec![asked.settlement("a", &charged, 0)]).await;
            assert_eq!((store.failures(), store.clone().contentions()), (0, 4));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn contention_follows_its_own_policy_and_failures_theirs() {
    let asked = Asked::of(TokenBucket::per_hour(10));
    for (choice, admitted, retry_after) in CHOICES {
        for fault in CONTENDED {
            let remote = Bucket::new();
            let open = remote.clone().fail_open().when_contended(choice);
            let closed = remote.clone().fail_closed().when_contended(choice);
            remote.usually(fault);
            for store in [&open, &closed] {
                // One answer per ask.
                let two = [asked.ask("a", 1), asked.ask("b", 2)];
                let Ok(decisions) = store.acquire(&two).await;
                assert_eq!(decisions.as_slice().len(), 2);
                for decision in decisions.as_slice() {
                    check(decision, admitted, retry_after);
                }
                check(
                    &asked.look(store, "a").await.unwrap(),
                    admitted,
                    retry_after,
                );
                assert_eq!((store.failures(), store.contentions()), (0, 2));
            }
            for kind in Kind::FAILURES {
                remote.usually(Fault::Fails(kind));
                check(&asked.acquire(&open, "a", 1).await.unwrap(), true, None);
                check(&asked.acquire(&closed, "a", 1).await.unwrap(), false, None);
            }
            for store in [&open, &closed] {
                assert_eq!((store.failures(), store.contentions()), (3, 2));
            }
            // None of these calls was charged.
            remote.usually(Fault::None);
            assert_eq!(asked.pass(&closed, "a", 20).await, 10);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn clients_get_retry_after() {
    let answer = async |choice, content_type| {
        let remote = Bucket::new();
        remote.usually(CONTENDED[0]);
        let store = remote.fail_open().when_contended(choice);
        let service = RateLimitLayer::new(TokenBucket::per_hour(10))
            .store(store)
            .respond(Http::new())
            .layer(service_fn(async |_: Request<()>| {
                Ok::<_, Infallible>(Response::new(String::new()))
            }));
        let request = Request::post("/").header("content-type", content_type);
        let Ok(response) = service.oneshot(request.body(()).unwrap()).await;
        response.into_parts().0
    };
    for (choice, admitted, retry_after) in CHOICES {
        let plain = answer(choice, "text/plain").await;
        let expected = if admitted {
            StatusCode::OK
        } else {
            StatusCode::SERVICE_UNAVAILABLE
        };
        assert_eq!(plain.status, expected);
        // In whole seconds, rounded up.
        let header = plain
            .headers
            .get("retry-after")
            .map(|value| value.as_bytes());
        assert_eq!(header, retry_after.map(|_| &b"2"[..]));
        assert!(!plain.headers.contains_key("ratelimit"));

        let grpc = answer(choice, "application/grpc").await.headers;
        if admitted {
            assert!(!grpc.contains_key("grpc-status"));
            continue;
        }
        let status = tonic::Status::from_header_map(&grpc).unwrap();
        assert_eq!(status.code(), tonic::Code::Unavailable);
        let info = status.get_details_retry_info();
        assert_eq!(info.and_then(|info| info.retry_delay), retry_after);
        let pushback = grpc
            .get("grpc-retry-pushback-ms")
            .map(|value| value.as_bytes());
        assert_eq!(pushback, retry_after.map(|_| &b"1500"[..]));
    }
}

/// If the share of a fallback were admitted during contention, it would come on top of the limit.
#[tokio::test(start_paused = true)]
async fn contention_does_not_admit_the_share_of_a_fallback() {
    for fault in CONTENDED {
        let set = set();
        let mut passed = 0;
        for call in 0..100 {
            if call % 3 > 0 {
                set.remote.plan([fault]);
            }
            let decision = set.asked.acquire(&set.store, "a", 1).await.unwrap();
            if call % 3 > 0 {
                check(&decision, false, None);
            }
            passed += usize::from(decision.is_admitted());
        }
        assert_eq!(passed, 10);
        let store = &set.store;
        assert_eq!((store.failures(), store.contentions()), (0, 66));
        assert_eq!(store.decided(), 0);
        assert!(set.local.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_fallback_supports_a_policy_for_contention() {
    let asked = Asked::of(TokenBucket::per_hour(10));
    for (choice, admitted, retry_after) in CHOICES {
        let remote = Bucket::new();
        let builder = remote.clone().fall_back_to(local());
        let store = builder.when_contended(choice).share(1, 2);
        for fault in CONTENDED {
            remote.usually(fault);
            check(
                &asked.acquire(&store, "a", 1).await.unwrap(),
                admitted,
                retry_after,
            );
            check(
                &asked.look(&store, "a").await.unwrap(),
                admitted,
                retry_after,
            );
        }
        assert_eq!((store.contentions(), store.decided()), (4, 0));
        // An outage still uses the share, one half.
        remote.usually(DOWN);
        assert_eq!(asked.pass(&store, "a", 20).await, 5);
        assert_eq!((store.failures(), store.contentions()), (20, 4));
    }
}

/// A charge of the remote store is settled there or not at all, also if a local store decides next.
#[tokio::test(start_paused = true)]
async fn a_contended_settlement_is_counted_and_not_made_locally() {
    for fault in CONTENDED {
        for actual in [0, 4] {
            let set = set();
            let charged = set.asked.acquire(&set.store, "a", 1).await.unwrap();
            set.remote.plan([fault]);
            let settlement = set.asked.settlement("a", &charged, actual);
            let Ok(()) = set.store.settle(vec![settlement]).await;
            assert_eq!((set.store.failures(), set.store.contentions()), (0, 1));
            assert_eq!((set.there("a"), set.here("a")), (9, 5));
        }
    }
}
