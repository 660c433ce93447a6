//! Calls that wait for their turn: the order, the bound, and the end of each wait.

use std::{
    convert::Infallible,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use futures_util::FutureExt;
use http::{Request, Response, StatusCode};
use support::Random;
use tokio::{sync::oneshot, time::Instant};
use tollgate::{
    Cost, InFlight, Limit, Limiter, LiveRule, Policy, RateLimitLayer,
    key::Key,
    store::{Local, LocalBuilder},
    time::ManualClock,
};
use tower::{Layer, Service, ServiceExt, service_fn};

use super::{cost, endings::quietly, held};

pub(crate) type Reply = Response<String>;

/// What the handler of a call does at last.
pub(crate) enum End {
    Respond,
    Fail,
    Panic,
}

/// A request, of which the handler says that it has begun, and which it ends as it is told.
#[derive(Clone)]
pub(crate) struct Order {
    pub(crate) id: u64,
    pub(crate) key: u64,
    pub(crate) units: u64,
    pub(crate) begun: Arc<Mutex<Vec<u64>>>,
    pub(crate) end: Arc<Mutex<Option<oneshot::Receiver<End>>>>,
}

pub(crate) fn handler() -> impl Service<
    Request<()>,
    Response = Reply,
    Error = &'static str,
    Future: Future<Output = Result<Reply, &'static str>> + Send,
> + Clone
+ Send {
    service_fn(|request: Request<()>| {
        let order = request.extensions().get::<Order>().unwrap();
        order.begun.lock().unwrap().push(order.id);
        let end = order.end.lock().unwrap().take().unwrap();
        async move {
            // Dropped with the call, as a handler's state is.
            let _request = request;
            match end.await {
                Ok(End::Respond) | Err(_) => Ok(Response::new(String::new())),
                Ok(End::Fail) => Err("failed"),
                Ok(End::Panic) => panic!("as it was told"),
            }
        }
    })
}

/// The flag of a task: whether it was woken since it was polled.
#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

type Answer = Result<Reply, &'static str>;

/// A call as a task of the test, which polls it when it is woken, or at any other time.
pub(crate) struct Call {
    pub(crate) id: u64,
    pub(crate) key: u64,
    pub(crate) units: u64,
    future: Pin<Box<dyn Future<Output = Answer> + Send>>,
    flag: Arc<Flag>,
    end: Option<oneshot::Sender<End>>,
}

impl Call {
    pub(crate) fn new<S>(
        service: &S,
        id: u64,
        key: u64,
        units: u64,
        begun: &Arc<Mutex<Vec<u64>>>,
    ) -> Self
    where
        S: Service<Request<()>, Response = Reply, Error = &'static str, Future: Send + 'static>
            + Clone,
    {
        let (end, told) = oneshot::channel();
        let mut request = Request::new(());
        request.extensions_mut().insert(Order {
            id,
            key,
            units,
            begun: Arc::clone(begun),
            end: Arc::new(Mutex::new(Some(told))),
        });
        // The test is one task, with many calls.
        let future = Box::pin(tokio::task::unconstrained(service.clone().call(request)));
        let flag = Arc::new(Flag(AtomicBool::new(true)));
        Self {
            id,
            key,
            units,
            future,
            flag,
            end: Some(end),
        }
    }

    pub(crate) fn is_woken(&self) -> bool {
        self.flag.0.load(Ordering::SeqCst)
    }

    pub(crate) fn poll(&mut self) -> Poll<Answer> {
        self.flag.0.store(false, Ordering::SeqCst);
        let waker = Waker::from(Arc::clone(&self.flag));
        self.future.as_mut().poll(&mut Context::from_waker(&waker))
    }

    /// Polls it if it was woken; returns the status of its response.
    pub(crate) fn status(&mut self) -> Option<StatusCode> {
        if !self.is_woken() {
            return None;
        }
        match self.poll() {
            Poll::Ready(response) => Some(response.unwrap().status()),
            Poll::Pending => None,
        }
    }

    pub(crate) fn tell(&mut self, end: End) {
        drop(self.end.take().unwrap().send(end));
    }
}

pub(crate) fn order_of(request: &Request<()>) -> &Order {
    request.extensions().get().unwrap()
}

pub(crate) const SECOND: Duration = Duration::from_secs(1);
const REFUSED: StatusCode = StatusCode::TOO_MANY_REQUESTS;

fn layer(
    rule: InFlight,
    store: &Local<InFlight>,
) -> impl Service<Request<()>, Response = Reply, Error = &'static str, Future: Send + 'static>
+ Clone
+ use<> {
    RateLimitLayer::new(rule)
        .store(store.clone())
        .key(|request: &Request<()>| Some(Key::from(order_of(request).key)))
        .cost(|request: &Request<()>| cost(order_of(request).units))
        .layer(handler())
}

/// Calls of one key and one unit.
struct Calls<S> {
    service: S,
    begun: Arc<Mutex<Vec<u64>>>,
    next: u64,
}

impl<S> Calls<S>
where
    S: Service<Request<()>, Response = Reply, Error = &'static str, Future: Send + 'static> + Clone,
{
    fn new(service: S) -> Self {
        Self {
            service,
            begun: Arc::default(),
            next: 0,
        }
    }

    /// Begins a call, and polls it once.
    fn call(&mut self) -> (Call, Option<StatusCode>) {
        let mut call = Call::new(&self.service, self.next, 0, 1, &self.begun);
        self.next += 1;
        let status = call.status();
        (call, status)
    }

    fn begin<const N: usize>(&mut self) -> [Call; N] {
        std::array::from_fn(|_| {
            let (call, status) = self.call();
            assert_eq!(status, None);
            call
        })
    }

    fn begun(&self) -> Vec<u64> {
        self.begun.lock().unwrap().clone()
    }
}

#[tokio::test(start_paused = true)]
async fn first_come_first_served() {
    let store = Local::new();
    let mut calls = Calls::new(layer(InFlight::at_most(3).wait_at_most(SECOND), &store));
    let mut open = calls.begin::<3>();
    let mut waiting = calls.begin::<3>();
    assert_eq!((calls.begun(), store.stats().waiting), (vec![0, 1, 2], 3));
    // As many wait as the rule has.
    assert_eq!(calls.call().1, Some(REFUSED));
    assert!(waiting.iter().all(|call| !call.is_woken()));
    for turn in 0..3 {
        open[turn].tell(End::Respond);
        assert_eq!(open[turn].status(), Some(StatusCode::OK));
        // Only the first is woken. A call that arrives before it is polled does not overtake it.
        let woken = waiting.iter().map(Call::is_woken).collect::<Vec<_>>();
        assert_eq!(woken, [turn == 0, turn == 1, turn == 2]);
        let (late, status) = calls.call();
        assert_eq!(status, (turn == 0).then_some(REFUSED));
        assert_eq!(calls.begun().len(), 3 + turn);
        drop(late);
        assert_eq!(waiting[turn].status(), None);
        assert_eq!(calls.begun().last(), Some(&(3 + turn as u64)));
        // The next one has looked whether there is more room.
        waiting
            .iter_mut()
            .for_each(|call| assert_eq!(call.status(), None));
        assert_eq!(held(&store, 0), 3);
    }
    drop((open, waiting));
    assert_eq!((held(&store, 0), store.stats().waiting), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_with_a_refusal() {
    let store = Local::new();
    let service = layer(InFlight::at_most(1).wait_at_most(2 * SECOND), &store);
    let mut calls = Calls::new(service.clone());
    let [open] = calls.begin();
    let begun = Instant::now();
    let mut request = Request::new(());
    request.extensions_mut().insert(Order {
        id: 1,
        key: 0,
        units: 1,
        begun: Arc::default(),
        end: Arc::default(),
    });
    let response = service.clone().oneshot(request).await.unwrap();
    assert_eq!(response.status(), REFUSED);
    assert!(response.headers().contains_key("retry-after"));
    // Of the paused clock, to the millisecond of tokio's timers.
    assert_eq!(begun.elapsed().as_millis(), 2_000);
    assert_eq!((held(&store, 0), store.stats().waiting), (1, 0));
    drop(open);
}

/// Each way to leave a line passes the turn on.
#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_passes_its_turn_on() {
    for (ends, drops_woken) in [(false, false), (true, false), (true, true)] {
        let store = Local::new();
        let mut calls = Calls::new(layer(InFlight::at_most(2).wait_at_most(SECOND), &store));
        let [mut open, other] = calls.begin();
        let [first, mut second] = calls.begin();
        if ends {
            open.tell(End::Respond);
            assert!(open.status().is_some());
        }
        if drops_woken || !ends {
            assert_eq!(first.is_woken(), drops_woken);
            drop(first);
            assert!(second.is_woken());
            assert_eq!(second.status(), None);
            assert_eq!(calls.begun().contains(&3), ends);
        } else {
            drop(second);
            assert!(first.is_woken());
        }
        drop((open, other));
    }
}

/// A call that is called to its turn and dies there gives back what it holds.
#[tokio::test(start_paused = true)]
async fn a_call_that_had_its_turn_ends_like_any_other() {
    let store = Local::new();
    let mut calls = Calls::new(layer(InFlight::at_most(1).wait_at_most(SECOND), &store));
    let [open] = calls.begin();
    let [mut first] = calls.begin();
    drop(open);
    assert_eq!((first.status(), held(&store, 0)), (None, 1));
    let [mut second] = calls.begin();
    first.tell(End::Panic);
    quietly(|| assert!(catch_unwind(AssertUnwindSafe(|| first.poll().is_ready())).is_err()));
    drop(first);
    assert_eq!((second.status(), held(&store, 0)), (None, 1));
    assert_eq!(calls.begun(), [0, 1, 2]);
}

#[test]
fn nothing_waits_outside_of_a_runtime() {
    let store = Local::new();
    let mut calls = Calls::new(layer(InFlight::at_most(1).wait_at_most(SECOND), &store));
    let _open = calls.begin::<1>();
    assert_eq!(calls.call().1, Some(REFUSED));
}

/// A cost above the limit never passes, so it does not wait.
#[tokio::test(start_paused = true)]
async fn a_cost_that_cannot_pass_is_refused_at_once() {
    let store = Local::new();
    let service = layer(InFlight::at_most(2).wait_at_most(SECOND), &store);
    let begun = Arc::default();
    let mut call = Call::new(&service, 0, 0, 3, &begun);
    assert_eq!(call.status(), Some(StatusCode::PAYLOAD_TOO_LARGE));
    let _open = Call::new(&service, 1, 0, 2, &begun);
    let _waits = Call::new(&service, 2, 0, 1, &begun);
    let mut call = Call::new(&service, 3, 0, 3, &begun);
    assert_eq!(call.status(), Some(StatusCode::PAYLOAD_TOO_LARGE));
    assert_eq!(store.stats().waiting, 1);
}

/// A large call waits for all of its units, and those behind it for their turn.
#[tokio::test(start_paused = true)]
async fn a_large_call_is_not_overtaken() {
    let store = Local::new();
    let service = layer(InFlight::at_most(3).wait_at_most(SECOND), &store);
    let begun = Arc::default();
    let call = |id, units| {
        let mut call = Call::new(&service, id, 0, units, &begun);
        assert_eq!(call.status(), None);
        call
    };
    let (mut one, two) = (call(0, 1), call(1, 2));
    let (mut large, mut small) = (call(2, 2), call(3, 1));
    one.tell(End::Respond);
    assert!(one.status().is_some());
    assert_eq!((large.status(), small.status()), (None, None));
    assert_eq!(*begun.lock().unwrap(), [0, 1]);
    drop(two);
    assert_eq!((large.status(), small.status()), (None, None));
    assert_eq!(*begun.lock().unwrap(), [0, 1, 2, 3]);
}

/// Nothing is released when a maximal hold is over, or a rule has more room: the first looks again.
#[tokio::test(start_paused = true)]
async fn room_without_a_release_is_found() {
    let clock = ManualClock::default();
    let store = LocalBuilder::new().clock(clock.clone()).build::<InFlight>();
    let rule = InFlight::at_most(1)
        .max_hold(10 * SECOND)
        .wait_at_most(60 * SECOND);
    let live = LiveRule::new(rule);
    let service = RateLimitLayer::from(Limit::live(&live))
        .store(store.clone())
        .layer(handler());
    let mut calls = Calls::new(service);
    let _open = calls.begin::<1>();
    let [mut first] = calls.begin();
    clock.advance(11 * SECOND);
    assert!(!first.is_woken());
    tokio::time::sleep(SECOND).await;
    assert_eq!((first.status(), calls.begun()), (None, vec![0, 1]));

    let [mut second] = calls.begin();
    live.set(InFlight::at_most(2).wait_at_most(60 * SECOND))
        .unwrap();
    tokio::time::sleep(SECOND).await;
    assert_eq!((second.status(), calls.begun().len()), (None, 3));

    let [mut third] = calls.begin();
    store.clear();
    assert!(third.is_woken());
    assert_eq!((third.status(), calls.begun().len()), (None, 4));

    // The hold is one of another rule of this policy, and the rule of the call never ends it.
    store.clear();
    let holds = InFlight::at_most(1).max_hold(10 * SECOND);
    let limiter = Limiter::new(Policy::new("default"), holds, store.clone());
    let _held = limiter.permit(Key::GLOBAL, Cost::ONE).at_once().unwrap();
    let waits = InFlight::at_most(1).wait_at_most(60 * SECOND);
    let layer = RateLimitLayer::new(waits).store(store.clone());
    let mut calls = Calls::new(layer.layer(handler()));
    let [mut call] = calls.begin();
    clock.advance(11 * SECOND);
    tokio::time::sleep(SECOND).await;
    assert_eq!((call.status(), calls.begun()), (None, vec![0]));
}

/// Plays calls that end in all ways, also while they wait and when they were called, in a random
/// order of arrivals, polls, ends and time-outs. Only what was woken is polled. After each event the
/// calls that have begun are those that came first; when nothing is woken, no call waits for room
/// that there is.
async fn play(calls: u64, keys: u64, limit: u64, seed: u64) {
    const WAIT: Duration = Duration::from_millis(50);
    let store = Local::new();
    let service = layer(InFlight::at_most(limit).wait_at_most(WAIT), &store);
    let mut random = Random::new(seed);
    let begun: Arc<Mutex<Vec<u64>>> = Arc::default();
    let (mut open, mut waiting): (Vec<Call>, Vec<Call>) = Default::default();
    let mut model = vec![0; keys as usize];
    let (mut made, mut counts) = (0, [0; 9]);
    while made < calls || !open.is_empty() || !waiting.is_empty() {
        let event = random.below(if made < calls { 8 } else { 6 });
        let woken = |list: &[Call]| list.iter().position(Call::is_woken);
        // Its call, if one is to be polled.
        let mut polled = None;
        match event {
            0 if !open.is_empty() => {
                let at = random.below(open.len() as u64) as usize;
                let mut call = open.swap_remove(at);
                let (key, units) = (call.key as usize, call.units);
                let end = random.below(4) as usize;
                match end {
                    0 => drop(call),
                    1 => {
                        call.tell(End::Respond);
                        assert!(matches!(call.poll(), Poll::Ready(Ok(_))));
                    }
                    2 => {
                        call.tell(End::Fail);
                        assert!(matches!(call.poll(), Poll::Ready(Err(_))));
                    }
                    _ => {
                        call.tell(End::Panic);
                        let poll = AssertUnwindSafe(|| call.poll().is_ready());
                        assert!(catch_unwind(poll).is_err());
                    }
                }
                counts[end] += 1;
                model[key] -= units;
            }
            1 if !waiting.is_empty() && random.once_in(4) => {
                let at = random.below(waiting.len() as u64) as usize;
                let call = waiting.remove(at);
                counts[if call.is_woken() { 4 } else { 5 }] += 1;
            }
            2 if random.once_in(4) => {
                tokio::time::advance(Duration::from_millis(random.below(30))).await;
            }
            6.. => {
                let (key, units) = (random.below(keys), 1 + random.below(limit) / 2);
                let before = store.stats().waiting;
                let mut call = Call::new(&service, made, key, units, &begun);
                made += 1;
                // One that waits need not be polled at once.
                if random.once_in(2) || store.stats().waiting == before {
                    match call.poll() {
                        Poll::Ready(answer) => {
                            assert_eq!(answer.unwrap().status(), REFUSED);
                            counts[6] += 1;
                            continue;
                        }
                        Poll::Pending => {}
                    }
                }
                waiting.push(call);
            }
            _ => polled = woken(&waiting),
        }
        if let Some(at) = polled
            && let Poll::Ready(answer) = waiting[at].poll()
        {
            assert_eq!(answer.unwrap().status(), REFUSED);
            waiting.remove(at);
            counts[7] += 1;
        }
        for id in std::mem::take(&mut *begun.lock().unwrap()) {
            let at = waiting.iter().position(|call| call.id == id).unwrap();
            let key = waiting[at].key;
            let mut before = waiting[..at].iter();
            assert!(
                before.all(|call| call.key != key),
                "call {id} was overtaken"
            );
            let call = waiting.remove(at);
            model[key as usize] += call.units;
            open.push(call);
            counts[8] += 1;
        }
        if woken(&waiting).is_none() {
            for key in 0..keys {
                let mut of_key = waiting.iter().filter(|call| call.key == key);
                let has_room = |call: &Call| model[key as usize] + call.units <= limit;
                assert!(!of_key.next().is_some_and(has_room), "key {key} sleeps");
            }
        }
        for key in 0..keys {
            assert_eq!(held(&store, key), model[key as usize]);
            assert!(model[key as usize] <= limit);
        }
    }
    assert_eq!((store.stats().waiting, store.len() as u64), (0, keys));
    assert!(
        counts.iter().all(|count| *count > calls / 500),
        "{counts:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn no_call_is_overtaken_or_left_asleep() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if info.payload().downcast_ref() != Some(&"as it was told") {
            hook(info);
        }
    }));
    for (seed, limit) in [(1, 1), (2, 2), (3, 4), (4, 8)] {
        play(support::cases(20_000).max(2_500), 5, limit, seed).await;
    }
}

/// Calls of many threads: never more than the limit, and each of them ends.
#[test]
fn threads_lose_no_turn() {
    const LIMIT: u64 = 3;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_time()
        .build()
        .unwrap();
    let inside = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
    let meter = Arc::clone(&inside);
    let rule = InFlight::at_most(LIMIT).wait_at_most(3_600 * SECOND);
    let store = Local::new();
    let service = RateLimitLayer::new(rule)
        .store(store.clone())
        .layer(service_fn(move |_: Request<()>| {
            let inside = Arc::clone(&meter);
            async move {
                let now = inside[0].fetch_add(1, Ordering::SeqCst) + 1;
                inside[1].fetch_max(now, Ordering::SeqCst);
                tokio::task::yield_now().await;
                inside[0].fetch_sub(1, Ordering::SeqCst);
                Ok::<_, Infallible>(Response::new(String::new()))
            }
        }));
    // As many at once as can be in flight or wait, and one that is refused now and then.
    let tasks = (0..2 * LIMIT + 1).map(|_| {
        let service = service.clone();
        runtime.spawn(async move {
            let mut refused = 0_u64;
            for _ in 0..support::cases(16_000).max(2_000) {
                let response = service.clone().oneshot(Request::new(())).await.unwrap();
                refused += u64::from(response.status() == REFUSED);
            }
            refused
        })
    });
    let tasks: Vec<_> = tasks.collect();
    for task in tasks {
        runtime.block_on(task).unwrap();
    }
    assert_eq!(inside[0].load(Ordering::SeqCst), 0);
    assert!(inside[1].load(Ordering::SeqCst) <= LIMIT);
    assert_eq!((held(&store, Key::GLOBAL), store.stats().waiting), (0, 0));
    let _ = service.oneshot(Request::new(())).now_or_never();
}
