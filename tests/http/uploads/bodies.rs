//! The bodies that are read on, and those that are not.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll},
};

use axum::body::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, Version, header::EXPECT};
use http_body::{Body, Frame, SizeHint};
use tokio::task::yield_now;
use tollgate::{
    RateLimitLayer, TokenBucket,
    respond::{DrainBodies, DrainStats, Grpc, Headers, Respond},
};
use tower::{Layer, ServiceExt, service_fn, util::BoxCloneSyncService};

use super::bounds::{refuse, respond};

/// A body of one frame, which counts how often it is polled.
#[derive(Clone, Default)]
struct Upload {
    polled: Arc<AtomicUsize>,
    is_read: bool,
    knows_its_end: bool,
    /// As hyper's does if the client has hung up after its last byte.
    fails_after_its_end: bool,
    length: Option<u64>,
}

impl Body for Upload {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        self.polled.fetch_add(1, Relaxed);
        if self.is_read {
            let end = self.fails_after_its_end.then_some(Err("hung up"));
            return Poll::Ready(end);
        }
        self.is_read = true;
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"bytes")))))
    }

    fn is_end_stream(&self) -> bool {
        self.knows_its_end || (self.fails_after_its_end && self.is_read)
    }

    fn size_hint(&self) -> SizeHint {
        self.length
            .map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

/// Lets the tasks of this thread run.
async fn run_all() {
    for _ in 0..10 {
        yield_now().await;
    }
}

/// Refuses an upload, and returns whether its body was read.
async fn is_read(upload: Upload, version: Version, expect: Option<&'static str>) -> bool {
    let respond = respond();
    let polled = Arc::clone(&upload.polled);
    let mut request = Request::new(upload);
    *request.version_mut() = version;
    if let Some(expect) = expect {
        let expect = HeaderValue::from_static(expect);
        request.headers_mut().insert(EXPECT, expect);
    }
    assert_eq!(refuse(&respond, request), StatusCode::SERVICE_UNAVAILABLE);
    run_all().await;
    let (stats, polled) = (respond.stats(), polled.load(Relaxed));
    assert_eq!(stats.started, stats.finished);
    assert_eq!(stats.started == 1, polled > 0);
    // Nothing of it is a failure.
    assert_eq!((stats.failed, stats.given_up), (0, 0));
    polled > 0
}

#[tokio::test]
async fn only_bodies_of_http_1_without_an_expectation_are_read() {
    for (version, is_http_1) in [
        (Version::HTTP_09, true),
        (Version::HTTP_10, true),
        (Version::HTTP_11, true),
        (Version::HTTP_2, false),
        (Version::HTTP_3, false),
    ] {
        let read = is_read(Upload::default(), version, None).await;
        assert_eq!(read, is_http_1, "{version:?}");
        for expect in ["100-continue", "100-Continue", "200-ok, 100-continue"] {
            assert!(!is_read(Upload::default(), version, Some(expect)).await);
        }
    }
}

#[tokio::test]
async fn a_body_is_finished_by_its_last_byte() {
    let upload = Upload {
        fails_after_its_end: true,
        ..Upload::default()
    };
    // That expects no failure.
    assert!(is_read(upload, Version::HTTP_11, None).await);
}

#[tokio::test]
async fn bodies_that_are_known_to_be_empty_are_not_read() {
    let ended = Upload {
        knows_its_end: true,
        ..Upload::default()
    };
    assert!(!is_read(ended, Version::HTTP_11, None).await);
    for (length, expected) in [(Some(0), false), (Some(5), true), (None, true)] {
        let upload = Upload {
            length,
            ..Upload::default()
        };
        let read = is_read(upload, Version::HTTP_11, None).await;
        assert_eq!(read, expected, "{length:?}");
    }
}

/// Returns a service whose handler drops the bodies that it gets, and responds when other tasks
/// have run.
fn dropping<L: Layer<Handler>>(layer: L) -> L::Service {
    layer.layer(Handler::new(service_fn(async |upload: Request<Upload>| {
        drop(upload);
        yield_now().await;
        Ok(Response::new(String::new()))
    })))
}

type Handler = BoxCloneSyncService<Request<Upload>, Response<String>, Infallible>;

#[tokio::test]
async fn bodies_of_admitted_requests_are_not_touched() {
    let respond = respond();
    let rule = TokenBucket::per_hour(10);
    let service = dropping(RateLimitLayer::new(rule).respond(respond.clone()));
    for admitted in [true, false] {
        for _ in 0..10 {
            let upload = Upload::default();
            let polled = Arc::clone(&upload.polled);
            let response = service.clone().oneshot(Request::new(upload)).await.unwrap();
            assert_eq!(response.status().is_success(), admitted);
            run_all().await;
            assert_eq!(polled.load(Relaxed) == 0, admitted);
        }
    }
    assert_eq!(respond.stats().finished, 10);
}

/// A request that is refused after its response has left its body to the handler.
#[tokio::test]
async fn bodies_of_requests_that_are_refused_late_are_not_touched() {
    let respond = respond();
    let limit = RateLimitLayer::new(TokenBucket::per_hour(1))
        .charge_after(|_: &Response<String>| true)
        .respond(respond.clone());
    let service = dropping(limit);
    let upload = || Request::new(Upload::default());
    // Both pass the look, and one the charge.
    let (one, other) = tokio::join!(service.clone().oneshot(upload()), service.oneshot(upload()));
    let mut statuses = [one, other].map(|answer| answer.unwrap().status().as_u16());
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 429]);
    run_all().await;
    assert_eq!(respond.stats(), DrainStats::default());
}

/// The answers are those of the responder inside, also its annotations.
#[tokio::test]
async fn answers_are_those_of_the_responder_inside() {
    let grpc = DrainBodies::new(Grpc::new());
    let service = dropping(RateLimitLayer::new(TokenBucket::per_hour(1)).respond(grpc.clone()));
    let plain = dropping(RateLimitLayer::new(TokenBucket::per_hour(1)).respond(Grpc::new()));
    for _ in 0..2 {
        let upload = || Request::new(Upload::default());
        let answer = service.clone().oneshot(upload()).await.unwrap();
        let expected = plain.clone().oneshot(upload()).await.unwrap();
        assert_eq!(answer.status(), expected.status());
        let names = |answer: &Response<String>| {
            let names = answer.headers().keys().map(|name| name.as_str().to_owned());
            names.collect::<Vec<_>>()
        };
        assert_eq!(names(&answer), names(&expected));
        assert_eq!(answer.body(), expected.body());
    }
    run_all().await;
    assert_eq!(grpc.stats().finished, 1);
    let wants = |respond: &DrainBodies<Grpc>| {
        Respond::<Request<Upload>, Response<String>, Infallible>::wants_outcome(respond)
    };
    assert!(wants(&grpc));
    let bare = Grpc::new().outcome(false).headers(Headers::None);
    assert!(!wants(&DrainBodies::new(bare)));
}
