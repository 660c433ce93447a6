//! Charges that are settled when the body of a response has ended.

use std::{convert::Infallible, future::poll_fn, pin::Pin};

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, Request, Response};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, StreamBody, combinators::UnsyncBoxBody};
use tollgate::{
    ChargeHandle, Policy, RateLimitLayer, TokenBucket,
    key::Key,
    respond::{Http, MeteredBody, MeteredUnit, SettleByBody},
    store::Local,
};
use tower::{ServiceBuilder, ServiceExt, service_fn};

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
    let limit = RateLimitLayer::new(rule())
        .store(store.clone())
        .respond(Http::empty())
        .cost(cost(100))
        .charge_handle();
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
    let limit = RateLimitLayer::new(rule())
        .store(store.clone())
        .respond(Http::empty())
        .cost(cost(100))
        .charge_handle();
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
