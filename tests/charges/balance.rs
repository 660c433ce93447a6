//! The final charges equal the actual costs after any end of a request: success, error, panic, or a
//! drop at any await.

use std::{
    future::poll_fn,
    panic::{AssertUnwindSafe, resume_unwind},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    task::Poll,
};

use futures_util::{FutureExt, future::join_all};
use http::{Request, Response};
use proptest::{
    prelude::*,
    strategy::ValueTree,
    test_runner::{Config, TestRunner},
};
use support::servers;
use tollgate::{ChargeHandle, Limit, RateLimitLayer, key::Key, respond::Http};
use tower::{Service, ServiceBuilder, ServiceExt, service_fn, util::BoxCloneService};

use super::{
    UNITS, at_once, cost,
    stores::{self, AnyStore},
};

/// The end of a handler.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    /// A response, and if it fulfils the condition of its limit.
    Response(bool),
    Error,
    Panic,
}

/// One request.
#[derive(Clone, Debug)]
struct Plan {
    cost: u64,
    /// The number of times that the handler waits.
    awaits: u32,
    /// The handler settles after so many waits, to these units.
    settles: Option<(u32, u64)>,
    end: End,
    /// The request is dropped at this wait, counted from 1.
    dropped_at: Option<u32>,
}

fn plans() -> impl Strategy<Value = Vec<Plan>> {
    let end = prop_oneof![
        4 => any::<bool>().prop_map(End::Response),
        1 => Just(End::Error),
        1 => Just(End::Panic),
    ];
    let plan = (
        1..40_u64,
        0..4_u32,
        prop::option::of((0..4_u32, 0..80_u64)),
        end,
        prop::option::weighted(0.3, 1..5_u32),
    );
    let plan = plan.prop_map(|(cost, awaits, settles, end, dropped_at)| Plan {
        cost,
        awaits,
        settles,
        end,
        dropped_at,
    });
    prop::collection::vec(plan, 1..12)
}

/// The charging of the limit.
#[derive(Clone, Copy, Debug)]
enum Mode {
    Handle,
    If,
    IfOrHandle,
    HandleOrIf,
    After,
}

const MODES: [Mode; 5] = [
    Mode::Handle,
    Mode::If,
    Mode::IfOrHandle,
    Mode::HandleOrIf,
    Mode::After,
];

impl Plan {
    fn is_dropped(&self) -> bool {
        self.dropped_at.is_some_and(|at| at <= self.awaits)
    }

    /// Returns the units that this request is charged in the end.
    fn charged(&self, mode: Mode) -> u64 {
        let reached = match self.dropped_at {
            // At the first wait the handler has come to the settlement before it.
            Some(at) if self.is_dropped() => at - 1,
            _ => self.awaits,
        };
        let settled = self.settles.filter(|(after, _)| *after <= reached);
        let by_response = match self.end {
            End::Response(false) if !self.is_dropped() => 0,
            _ => self.cost,
        };
        match (mode, settled) {
            (Mode::Handle | Mode::IfOrHandle | Mode::HandleOrIf, Some((_, units))) => units,
            (Mode::Handle, None) => self.cost,
            _ => by_response,
        }
    }
}

#[derive(Debug)]
struct Failed;

struct Job {
    plan: Plan,
    key: Key,
    /// The number of waits that the handler has begun.
    awaits: Arc<AtomicU32>,
}

async fn handle(request: Request<Job>) -> Result<Response<bool>, Failed> {
    let plan = &request.body().plan;
    let settle = |after| {
        let handle = request.extensions().get::<ChargeHandle>();
        if let (Some(handle), Some((at, units))) = (handle, plan.settles)
            && at == after
        {
            // Made in the background, so not awaited: a drop must not lose it.
            drop(handle.settle(units).unwrap());
        }
    };
    settle(0);
    for after in 1..=plan.awaits {
        request.body().awaits.store(after, Ordering::Relaxed);
        tokio::task::yield_now().await;
        settle(after);
    }
    request.body().awaits.store(u32::MAX, Ordering::Relaxed);
    match plan.end {
        End::Response(charged) => Ok(Response::new(charged)),
        End::Error => Err(Failed),
        // Without the message of a panic.
        End::Panic => resume_unwind(Box::new("the handler panics")),
    }
}

type Handler = BoxCloneService<Request<Job>, Response<bool>, Failed>;

/// A limit in this mode, beside one that charges at once: as a pair, or as a list.
fn service(store: &AnyStore, mode: Mode, is_list: bool) -> Handler {
    let key = |request: &Request<Job>| request.body().key;
    let units = |request: &Request<Job>| cost(request.body().plan.cost);
    let condition = |response: &Response<bool>| *response.body();
    let limit = |name| Limit::new(at_once(UNITS)).named(name).key(key).cost(units);
    let inner = service_fn(handle);
    macro_rules! with {
        ($settled:expr) => {
            if is_list {
                let limits = vec![limit("plain").boxed(), $settled.boxed()];
                let layer = RateLimitLayer::list(limits).unwrap().store(store.clone());
                let layer = layer.respond(Http::empty());
                ServiceBuilder::new()
                    .layer(layer)
                    .service(inner)
                    .boxed_clone()
            } else {
                let layer = RateLimitLayer::from(limit("plain")).store(store.clone());
                let layer = layer.respond(Http::empty()).also($settled);
                ServiceBuilder::new()
                    .layer(layer)
                    .service(inner)
                    .boxed_clone()
            }
        };
    }
    let settled = limit("settled");
    match mode {
        Mode::Handle => with!(settled.charge_handle()),
        Mode::If => with!(settled.charge_if(condition)),
        Mode::IfOrHandle => with!(settled.charge_if(condition).charge_handle()),
        Mode::HandleOrIf => with!(settled.charge_handle().charge_if(condition)),
        Mode::After => with!(settled.charge_after(condition)),
    }
}

/// Sends one request, and drops it when its plan says so.
async fn send(mut service: Handler, plan: Plan, key: Key) {
    let awaits = Arc::new(AtomicU32::new(0));
    let job = Job {
        plan: plan.clone(),
        key,
        awaits: Arc::clone(&awaits),
    };
    let service = service.ready().await.unwrap();
    let response = AssertUnwindSafe(service.call(Request::new(job))).catch_unwind();
    let mut response = Box::pin(response);
    poll_fn(|cx| match response.as_mut().poll_unpin(cx) {
        Poll::Ready(_) => Poll::Ready(()),
        Poll::Pending if Some(awaits.load(Ordering::Relaxed)) == plan.dropped_at => Poll::Ready(()),
        Poll::Pending => Poll::Pending,
    })
    .await;
}

/// Sends all requests at once, and compares the sum of charges.
async fn check(store: &AnyStore, mode: Mode, service: &Handler, plans: &[Plan], key: Key) {
    let requests = plans.iter().cloned();
    join_all(requests.map(|plan| send(service.clone(), plan, key))).await;

    let charged: u64 = plans.iter().map(|plan| plan.charged(mode)).sum();
    let left = stores::settled(store, "settled", &at_once(UNITS), key, UNITS - charged).await;
    assert_eq!(UNITS - left, charged, "{mode:?} {plans:?}");
    let at_once_charged: u64 = plans.iter().map(|plan| plan.cost).sum();
    let left = stores::remaining(store, "plain", &at_once(UNITS), key).await;
    assert_eq!(UNITS - left, at_once_charged, "{mode:?} {plans:?}");
}

async fn check_random(store: AnyStore, cases: u64) {
    let mut runner = TestRunner::new(Config::default());
    let forms = [false, true].into_iter();
    let services =
        forms.flat_map(|is_list| MODES.map(|mode| (mode, service(&store, mode, is_list))));
    let services: Vec<_> = services.collect();
    for case in 0..cases {
        let plans = plans().new_tree(&mut runner).unwrap().current();
        for (index, (mode, service)) in services.iter().enumerate() {
            let key = Key::from(case * services.len() as u64 + index as u64);
            check(&store, *mode, service, &plans, key).await;
        }
    }
}

#[tokio::test]
async fn charges_balance_in_memory() {
    check_random(stores::memory(), support::cases(250).max(30)).await;
}

#[tokio::test]
async fn charges_balance_in_redis() {
    let server = servers::Redis::start();
    check_random(stores::redis(&server).await, 20).await;
}

#[tokio::test]
async fn charges_balance_in_memcached() {
    let server = servers::Memcached::start();
    check_random(stores::memcached(&server).await, 20).await;
}
