//! Charges that are settled when the body of a response has ended.

use std::{
    convert::Infallible,
    future::{Ready, poll_fn, ready},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use futures_util::{FutureExt, stream};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, StreamBody, combinators::UnsyncBoxBody};
use tollgate::{
    ChargeHandle, Policy, RateLimitLayer, TokenBucket,
    key::Key,
    respond::{Http, MeteredBody, MeteredUnit, SettleByBody},
    store::Local,
};
use tower::{
    Layer, Service, ServiceBuilder, ServiceExt,
    retry::{Policy as RetryPolicy, RetryLayer},
    service_fn,
};

use super::{at_once, cost};

/// A frame of a body, or its failure.
#[derive(Clone, Copy)]
enum Item {
    Data(&'static [u8]),
    Trailers,
    Failure,
}

type FrameResult = Result<Frame<Bytes>, &'static str>;

type Stream = UnsyncBoxBody<Bytes, &'static str>;

/// Three frames of data of 4, 6 and 2 bytes, and trailers.
const WHOLE: [Item; 4] = [
    Item::Data(b"1234"),
    Item::Data(b"123456"),
    Item::Data(b"12"),
    Item::Trailers,
];

fn body(items: &[Item]) -> Stream {
    let frame = |item: &Item| match item {
        Item::Data(data) => Ok(Frame::data(Bytes::from_static(data))),
        Item::Trailers => Ok(Frame::trailers(HeaderMap::new())),
        Item::Failure => Err("broken"),
    };
    let frames: Vec<_> = items.iter().map(frame).collect();
    StreamBody::new(stream::iter(frames)).boxed_unsync()
}

fn rule() -> TokenBucket {
    at_once(1000)
}

/// A layer that charges 100 for each request, before it is settled.
macro_rules! estimated {
    ($store:expr) => {
        RateLimitLayer::new(rule())
            .store($store.clone())
            .respond(Http::empty())
            .cost(cost(100))
    };
}

fn charged(store: &Local<TokenBucket>) -> u64 {
    let look = store.look(&Policy::default(), &rule(), &Key::GLOBAL);
    1000 - look.remaining().unwrap()
}

/// Responds with these frames below a limit that reserves 100 units.
async fn respond(
    store: &Local<TokenBucket>,
    by: SettleByBody,
    items: &'static [Item],
    settles: bool,
) -> MeteredBody<Stream> {
    let limit = estimated!(store).charge_handle();
    let service = ServiceBuilder::new()
        .layer(limit)
        .layer(by)
        .service(service_fn(move |request: Request<()>| {
            let charge = request.extensions().get::<ChargeHandle>().unwrap();
            if settles {
                drop(charge.settle(55).unwrap());
            }
            let response = Response::new(body(items));
            async { Ok::<_, Infallible>(response) }
        }));
    let response = service.oneshot(Request::new(())).await.unwrap();
    response.into_body()
}

async fn next(body: &mut MeteredBody<Stream>) -> Option<FrameResult> {
    poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await
}

#[tokio::test]
async fn a_whole_body_settles_its_length() {
    for (by, units) in [(SettleByBody::bytes(), 12), (SettleByBody::frames(), 3)] {
        let store = Local::new();
        let mut body = respond(&store, by, &WHOLE, false).await;
        assert_eq!(charged(&store), 100);
        while let Some(frame) = next(&mut body).await {
            frame.unwrap();
            assert_eq!(charged(&store), 100);
        }
        // At its end, not when it is dropped.
        assert_eq!(charged(&store), units);
        drop(body);
        assert_eq!(charged(&store), units);
    }
}

#[tokio::test]
async fn a_body_that_is_dropped_settles_what_it_sent() {
    for (sent, units) in [(0, 0), (1, 4), (2, 10), (3, 12)] {
        let store = Local::new();
        let mut body = respond(&store, SettleByBody::bytes(), &WHOLE, false).await;
        for _ in 0..sent {
            next(&mut body).await.unwrap().unwrap();
        }
        drop(body);
        assert_eq!(charged(&store), units);
    }
}

#[tokio::test]
async fn a_body_that_fails_settles_what_it_sent() {
    let store = Local::new();
    const BROKEN: [Item; 3] = [Item::Data(b"1234"), Item::Failure, Item::Data(b"12")];
    let mut body = respond(&store, SettleByBody::bytes(), &BROKEN, false).await;
    next(&mut body).await.unwrap().unwrap();
    next(&mut body).await.unwrap().unwrap_err();
    assert_eq!(charged(&store), 4);
}

#[tokio::test]
async fn a_handler_that_settles_is_left_alone() {
    let store = Local::new();
    let body = respond(&store, SettleByBody::bytes(), &WHOLE, true).await;
    assert_eq!(body.collect().await.unwrap().to_bytes().len(), 12);
    assert_eq!(charged(&store), 55);
}

#[tokio::test]
async fn another_clone_of_the_count_settles_last() {
    let store = Local::new();
    let limit = estimated!(store).charge_handle();
    let (sender, receiver) = std::sync::mpsc::channel();
    let service =
        ServiceBuilder::new()
            .layer(limit)
            .service(service_fn(move |request: Request<()>| {
                let charge = request.extensions().get::<ChargeHandle>().unwrap();
                let usage = charge.usage().unwrap();
                sender.send(usage.clone()).unwrap();
                let body = http_body_util::Full::new(Bytes::from_static(b"1234"));
                let response = Response::new(MeteredBody::new(body, usage, MeteredUnit::Bytes));
                async { Ok::<_, Infallible>(response) }
            }));
    let response = service.oneshot(Request::new(())).await.unwrap();
    response.into_body().collect().await.unwrap();
    let usage = receiver.recv().unwrap();
    usage.add(3);
    assert_eq!((usage.units(), charged(&store)), (7, 100));
    drop(usage);
    assert_eq!(charged(&store), 7);
}

/// Sends a request again after a response with an error, of which it reads so many frames.
#[derive(Clone)]
struct Again {
    frames: usize,
}

type HandlerResult<B> = Result<Response<B>, Infallible>;

impl<B> RetryPolicy<Request<()>, Response<B>, Infallible> for Again
where
    B: Body<Data = Bytes> + Unpin,
{
    type Future = Ready<()>;

    fn retry(&mut self, _: &mut Request<()>, result: &mut HandlerResult<B>) -> Option<Ready<()>> {
        let response = result.as_mut().unwrap();
        if response.status() == StatusCode::OK {
            return None;
        }
        for _ in 0..self.frames {
            let frame = response.body_mut().frame().now_or_never();
            assert!(frame.flatten().is_some_and(|frame| frame.is_ok()));
        }
        Some(ready(()))
    }

    fn clone_request(&mut self, request: &Request<()>) -> Option<Request<()>> {
        Some(request.clone())
    }
}

/// Returns a handler that succeeds from its second call on.
fn second_time() -> impl Fn(Request<()>) -> Ready<HandlerResult<Stream>> + Clone {
    let has_failed = Arc::new(AtomicBool::new(false));
    move |_| {
        let mut response = Response::new(body(&WHOLE));
        if !has_failed.swap(true, Ordering::Relaxed) {
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        }
        ready(Ok(response))
    }
}

/// Sends a request whose first response is an error, and returns the bytes that its client got.
async fn got<S, B>(service: S) -> u64
where
    S: Service<Request<()>, Response = Response<B>, Error = Infallible>,
    B: Body<Data = Bytes, Error = &'static str>,
{
    let response = service.oneshot(Request::new(())).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    bytes.len() as u64
}

#[tokio::test]
async fn a_request_that_is_tried_again_is_charged_its_bodies_wherever_that_is_done() {
    for (frames, read) in [(0, 0), (1, 4), (2, 10)] {
        for place in 0..3 {
            let store = Local::new();
            let limit = estimated!(store).charge_handle();
            let inner = service_fn(second_time());
            let (again, by) = (RetryLayer::new(Again { frames }), SettleByBody::bytes());
            let got = match place {
                0 => got(again.layer(limit.layer(by.layer(inner)))).await,
                1 => got(limit.layer(again.layer(by.layer(inner)))).await,
                _ => got(limit.layer(by.layer(again.layer(inner)))).await,
            };
            // A layer below the count hides the bodies that it drops.
            let all = if place == 2 { got } else { got + read };
            assert_eq!((got, charged(&store)), (12, all), "{frames}, {place}");
        }
    }
}

#[tokio::test]
async fn of_several_layers_the_outermost_settles_a_charge_wherever_requests_are_tried_again() {
    let (bytes, frames) = (SettleByBody::bytes(), SettleByBody::frames());
    for (outer, inner, units, read) in [
        (bytes.clone(), bytes.clone(), 12, 4),
        (bytes.clone(), bytes.clone().of("default"), 12, 4),
        (bytes.clone(), frames.clone(), 12, 4),
        (frames, bytes, 3, 1),
    ] {
        for place in 0..3 {
            let store = Local::new();
            let limit = estimated!(store).charge_handle();
            let service = service_fn(second_time());
            let again = RetryLayer::new(Again { frames: 1 });
            let got = match place {
                0 => got(limit.layer(again.layer(outer.layer(inner.layer(service))))).await,
                1 => got(limit.layer(outer.layer(again.layer(inner.layer(service))))).await,
                _ => got(limit.layer(outer.layer(inner.layer(again.layer(service))))).await,
            };
            let all = if place == 0 { units + read } else { units };
            assert_eq!((got, charged(&store)), (12, all), "{place}");
        }
    }
}

#[tokio::test]
async fn a_response_without_a_charge_gives_it_back_although_a_body_was_counted_before() {
    let store = Local::new();
    let limit = estimated!(store)
        .charge_if(|response: &Response<MeteredBody<Stream>>| response.status() != StatusCode::OK)
        .charge_handle();
    let inner = service_fn(second_time());
    let again = RetryLayer::new(Again { frames: 1 });
    let service = limit.layer(again.layer(SettleByBody::bytes().layer(inner)));
    assert_eq!((got(service).await, charged(&store)), (12, 0));
}
