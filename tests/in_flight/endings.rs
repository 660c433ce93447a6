//! Many calls in flight at once, each of which ends in one of the ways in which a call can end.

use std::{
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook},
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU8, AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
};

use axum::body::Body;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::{Body as _, Frame, SizeHint};
use support::Random;
use tollgate::{
    InFlight, Permit, Policy, RateLimitLayer, key::Key, observe::Observer, respond::SettleByBody,
    store::Local,
};
use tower::{Layer, Service};

use super::{cost, held};

/// Orders to the handler of a call, for its next poll.
const WAIT: u8 = 0;
const RESPOND: u8 = 1;
const FAIL: u8 = 2;
const PANIC: u8 = 3;
const DETACH: u8 = 4;

#[derive(Clone)]
struct Orders {
    next: Arc<AtomicU8>,
    /// The permit that a handler took out of its request.
    detached: Arc<Mutex<Option<Permit>>>,
}

/// A handler that does as it is told.
#[derive(Clone)]
struct Handler;

struct Handling {
    request: Option<Request<()>>,
}

impl Future for Handling {
    type Output = Result<Response<Body>, &'static str>;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        let mut request = self.request.take().unwrap();
        let orders = request.extensions().get::<Orders>().unwrap().clone();
        let respond = || Ok(Response::new(Body::new(Chunks(2))));
        match orders.next.load(Ordering::Relaxed) {
            WAIT => {
                self.request = Some(request);
                Poll::Pending
            }
            RESPOND => Poll::Ready(respond()),
            DETACH => {
                *orders.detached.lock().unwrap() = Permit::take(request.extensions_mut());
                Poll::Ready(respond())
            }
            FAIL => Poll::Ready(Err("failed")),
            _ => panic!("as it was told"),
        }
    }
}

impl Service<Request<()>> for Handler {
    type Response = Response<Body>;
    type Error = &'static str;
    type Future = Handling;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<()>) -> Handling {
        let orders = request.extensions().get::<Orders>().unwrap();
        if orders.next.load(Ordering::Relaxed) == PANIC {
            panic!("as it was told");
        }
        let request = Some(request);
        Handling { request }
    }
}

/// A body of so many chunks.
struct Chunks(u8);

impl http_body::Body for Chunks {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        if self.0 == 0 {
            return Poll::Ready(None);
        }
        self.0 -= 1;
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"chunk")))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

/// A meter beside the layer: the units that calls have held, and those that they gave back.
#[derive(Clone, Default)]
pub(super) struct Units(Arc<[AtomicU64; 2]>);

impl Units {
    pub(super) fn held(&self) -> u64 {
        self.0[0].load(Ordering::Relaxed)
    }

    pub(super) fn released(&self) -> u64 {
        self.0[1].load(Ordering::Relaxed)
    }
}

impl Observer for Units {
    fn held(&self, _: &Policy, _: &Key, units: u64) {
        self.0[0].fetch_add(units, Ordering::Relaxed);
    }

    fn released(&self, _: &Policy, _: &Key, units: u64) {
        self.0[1].fetch_add(units, Ordering::Relaxed);
    }
}

/// The ways in which a call ends.
enum Ending {
    CallPanicked,
    Dropped,
    Failed,
    Panicked,
    BodyDropped,
    BodyEnded,
    HandlerEnded,
}

const ENDINGS: usize = Ending::HandlerEnded as usize + 1;

/// A call in flight, in one of its stages.
enum Stage<F> {
    Called(Pin<Box<F>>),
    Responded(Body),
    /// The handler went on.
    Detached,
}

struct Call<F> {
    key: u64,
    units: u64,
    orders: Orders,
    stage: Stage<F>,
}

fn call<S>(service: &mut S, key: u64, units: u64, orders: &Orders) -> S::Future
where
    S: Service<Request<()>>,
{
    let mut request = Request::new(());
    let extensions = request.extensions_mut();
    extensions.insert(orders.clone());
    extensions.insert((key, units));
    service.call(request)
}

fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Plays `calls` calls of `keys` keys, most of them in flight at the same time, and checks after
/// each event what its key holds.
fn play(calls: u64, keys: u64, seed: u64) {
    let most = (calls / keys).max(1);
    let store = Local::new();
    let meter = Units::default();
    let of_request = |request: &Request<()>| *request.extensions().get::<(u64, u64)>().unwrap();
    let mut service = RateLimitLayer::new(InFlight::at_most(most))
        .store(store.clone())
        .key(move |request: &Request<()>| Some(Key::from(of_request(request).0)))
        .cost(move |request: &Request<()>| cost(of_request(request).1))
        .observe(meter.clone())
        .layer(Handler);
    let mut random = Random::new(seed);
    let mut model = vec![0; keys as usize];
    let mut in_flight = Vec::new();
    // Kept until the next one: a future that has its result holds nothing.
    let mut finished = None;
    let (mut begun, mut refused, mut most_at_once) = (0, 0, 0);
    let mut endings = [0_u64; ENDINGS];
    while begun < calls || !in_flight.is_empty() {
        let begins = begun < calls && (in_flight.is_empty() || !random.once_in(8));
        let key = if begins {
            begun += 1;
            let (key, units) = (random.below(keys), 1 + random.below(3) / 2);
            let orders = Orders {
                next: Arc::new(AtomicU8::new(WAIT)),
                detached: Arc::default(),
            };
            let panics = random.once_in(16);
            orders
                .next
                .store(if panics { PANIC } else { WAIT }, Ordering::Relaxed);
            let called = || call(&mut service, key, units, &orders);
            let Ok(future) = catch_unwind(AssertUnwindSafe(called)) else {
                assert!(panics && model[key as usize] + units <= most);
                endings[Ending::CallPanicked as usize] += 1;
                assert_eq!(held(&store, key), model[key as usize], "key {key}");
                continue;
            };
            let mut future = Box::pin(future);
            match poll(future.as_mut()) {
                Poll::Pending => {
                    model[key as usize] += units;
                    let stage = Stage::Called(future);
                    in_flight.push(Call {
                        key,
                        units,
                        orders,
                        stage,
                    });
                }
                Poll::Ready(response) => {
                    assert_eq!(response.unwrap().status(), StatusCode::TOO_MANY_REQUESTS);
                    assert!(model[key as usize] + units > most);
                    refused += 1;
                }
            }
            key
        } else {
            let at = random.below(in_flight.len() as u64) as usize;
            let mut call = in_flight.swap_remove(at);
            let (key, units) = (call.key, call.units);
            match end_or_go_on(&mut call, &mut random, &mut endings, &mut finished) {
                true => model[key as usize] -= units,
                false => in_flight.push(call),
            }
            key
        };
        most_at_once = most_at_once.max(in_flight.len());
        assert!(model[key as usize] <= most);
        assert_eq!(held(&store, key), model[key as usize], "key {key}");
    }
    assert!((0..keys).all(|key| held(&store, key) == 0));
    let (all, given_back) = (meter.held(), meter.released());
    assert_eq!(all, given_back);
    assert!(refused > 0 && all > calls / 2, "{refused} of {calls}");
    assert!(most_at_once as u64 > calls / 2, "{most_at_once}");
    assert!(
        endings.iter().all(|count| *count > calls / 1_000),
        "{endings:?}"
    );
}

/// Lets a call go on by one event. Returns `true` if it has ended, so that it holds nothing.
fn end_or_go_on<F>(
    call: &mut Call<F>,
    random: &mut Random,
    endings: &mut [u64; ENDINGS],
    finished: &mut Option<Pin<Box<F>>>,
) -> bool
where
    F: Future<Output = Result<Response<Body>, &'static str>>,
{
    let stage = std::mem::replace(&mut call.stage, Stage::Detached);
    let order = |order| call.orders.next.store(order, Ordering::Relaxed);
    match stage {
        Stage::Called(mut future) => match random.below(6) {
            0 => {
                drop(future);
                endings[Ending::Dropped as usize] += 1;
                true
            }
            1 => {
                order(FAIL);
                assert!(matches!(poll(future.as_mut()), Poll::Ready(Err(_))));
                *finished = Some(future);
                endings[Ending::Failed as usize] += 1;
                true
            }
            2 => {
                order(PANIC);
                let polled = catch_unwind(AssertUnwindSafe(|| poll(future.as_mut()).is_ready()));
                assert!(polled.is_err());
                drop(future);
                endings[Ending::Panicked as usize] += 1;
                true
            }
            n => {
                order(if n == 3 { DETACH } else { RESPOND });
                let Poll::Ready(Ok(response)) = poll(future.as_mut()) else {
                    panic!("it was told to respond");
                };
                *finished = Some(future);
                call.stage = Stage::Responded(response.into_body());
                false
            }
        },
        Stage::Responded(mut body) => {
            let ended = match random.below(3) {
                0 => {
                    drop(body);
                    endings[Ending::BodyDropped as usize] += 1;
                    true
                }
                1 => {
                    while let Poll::Ready(Some(frame)) =
                        Pin::new(&mut body).poll_frame(&mut Context::from_waker(Waker::noop()))
                    {
                        frame.unwrap();
                    }
                    endings[Ending::BodyEnded as usize] += 1;
                    true
                }
                _ => {
                    let context = &mut Context::from_waker(Waker::noop());
                    if let Poll::Ready(Some(_)) = Pin::new(&mut body).poll_frame(context) {
                        call.stage = Stage::Responded(body);
                        return false;
                    }
                    endings[Ending::BodyEnded as usize] += 1;
                    true
                }
            };
            let goes_on = call.orders.detached.lock().unwrap().is_some();
            ended && !goes_on
        }
        Stage::Detached => {
            call.orders.detached.lock().unwrap().take();
            endings[Ending::HandlerEnded as usize] += 1;
            true
        }
    }
}

/// Keeps the messages of panics that the test wants out of its output.
pub(crate) fn quietly(play: impl FnOnce()) {
    let hook = take_hook();
    set_hook(Box::new(move |info| {
        if info.payload().downcast_ref() != Some(&"as it was told") {
            hook(info);
        }
    }));
    play();
}

#[test]
fn all_calls_give_back_what_they_hold() {
    quietly(|| play(100_000, 400, 1));
}

#[test]
#[ignore = "takes its time"]
fn slow_a_million_calls_give_back_what_they_hold() {
    quietly(|| play(1_000_000, 4_000, 2));
}

#[test]
fn a_call_that_fails_gives_back_with_its_error_below_a_metered_body_too() {
    let store = Local::new();
    let layer = RateLimitLayer::new(InFlight::at_most(1))
        .store(store.clone())
        .key(|_: &Request<()>| Some(Key::from(0)));
    let mut service = layer.layer(SettleByBody::permits().layer(Handler));
    let orders = Orders {
        next: Arc::new(AtomicU8::new(WAIT)),
        detached: Arc::default(),
    };
    let mut future = Box::pin(call(&mut service, 0, 1, &orders));
    assert!(poll(future.as_mut()).is_pending());
    assert_eq!(held(&store, 0), 1);
    orders.next.store(FAIL, Ordering::Relaxed);
    assert!(matches!(poll(future.as_mut()), Poll::Ready(Err("failed"))));
    assert_eq!(held(&store, 0), 0);
}
