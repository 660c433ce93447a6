//! Calls that wait for their turn, beside everything else that a layer can do.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use http::{Request, StatusCode};
use support::Random;
use tollgate::{
    AnyRule, InFlight, Limit, LiveRule, Policy, RateLimitLayer,
    key::Key,
    observe::{Event, Observer},
    store::{
        Backend, CircuitBreakerConfig, Local, NeverFails, Store, StoreExt,
        driver::{Ask, Check, Settlement, delegate},
    },
    testing::{Fault, Faulty},
};
use tower::{Layer, Service};

use super::waiting::{Call, End, Reply, SECOND, handler, order_of};

const OK: Option<StatusCode> = Some(StatusCode::OK);
const REFUSED: Option<StatusCode> = Some(StatusCode::TOO_MANY_REQUESTS);

fn rule(text: &str) -> AnyRule {
    text.parse().unwrap()
}

fn by_key(request: &Request<()>) -> Option<Key> {
    Some(Key::from(order_of(request).key))
}

/// Makes calls to a service, and keeps the order in which they begin.
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

    /// Begins a call, and polls it as often as it is woken; returns its status, if it is answered.
    fn call(&mut self, key: u64) -> (Call, Option<StatusCode>) {
        let mut call = Call::new(&self.service, self.next, key, 1, &self.begun);
        self.next += 1;
        let status = settled(&mut call);
        (call, status)
    }

    /// Begins a call that is not answered yet.
    fn begin(&mut self, key: u64) -> Call {
        let (call, status) = self.call(key);
        assert_eq!(status, None);
        call
    }

    fn begun(&self) -> Vec<u64> {
        self.begun.lock().unwrap().clone()
    }
}

/// Polls a call as often as it is woken.
fn settled(call: &mut Call) -> Option<StatusCode> {
    while call.is_woken() {
        if let Some(status) = call.status() {
            return Some(status);
        }
    }
    None
}

fn respond(call: &mut Call) {
    call.tell(End::Respond);
    assert_eq!(settled(call), OK);
}

/// Counts the events of each limit.
#[derive(Clone, Default)]
struct Events(Arc<Mutex<BTreeMap<(String, &'static str), u64>>>);

impl Events {
    fn add(&self, policy: &Policy, event: &'static str) {
        let name = (policy.name().to_owned(), event);
        *self.0.lock().unwrap().entry(name).or_default() += 1;
    }

    fn take(&self) -> Vec<(String, &'static str, u64)> {
        let all = std::mem::take(&mut *self.0.lock().unwrap());
        all.into_iter()
            .map(|((policy, event), count)| (policy, event, count))
            .collect()
    }
}

impl Observer for Events {
    fn admitted(&self, event: &Event<'_>) {
        self.add(event.policy(), "admitted");
    }
    fn refused(&self, event: &Event<'_>) {
        self.add(event.policy(), "refused");
    }
    fn dry_run(&self, event: &Event<'_>) {
        self.add(event.policy(), "dry run");
    }
    fn held(&self, policy: &Policy, _: &Key, _: u64) {
        self.add(policy, "held");
    }
    fn released(&self, policy: &Policy, _: &Key, _: u64) {
        self.add(policy, "released");
    }
    fn settled(&self, policy: &Policy, _: &Key, _: u64, _: u64) {
        self.add(policy, "settled");
    }
}

/// A call that waits charges nothing of a rate before its turn, and is observed once.
#[tokio::test(start_paused = true)]
async fn a_waiting_call_charges_and_shows_nothing() {
    let (store, events) = (Local::new(), Events::default());
    let rate = rule("token-bucket 3/1h");
    let service = RateLimitLayer::new(rule("in-flight 1 wait-at-most=1s"))
        .named("calls")
        .store(store.clone())
        .also(Limit::new(rate.clone()).named("rate"))
        .observe(events.clone())
        .layer(handler());
    let mut calls = Calls::new(service);
    let tokens = || {
        let look = store.look(&Policy::new("rate"), &rate, &Key::GLOBAL);
        look.remaining()
    };
    let mut open = calls.begin(0);
    events.take();
    let mut waiting = calls.begin(0);
    assert_eq!((tokens(), events.take()), (Some(2), vec![]));
    respond(&mut open);
    events.take();
    assert_eq!((settled(&mut waiting), tokens()), (None, Some(1)));
    let expected = [
        ("calls", "admitted"),
        ("calls", "held"),
        ("rate", "admitted"),
    ];
    let expected = expected.map(|(policy, event)| (policy.to_owned(), event, 1));
    assert_eq!(events.take(), expected);

    // One more passes, and those behind it are refused by the rate: at their turn, or at once.
    let (mut second, mut third) = (calls.begin(0), calls.call(0));
    assert_eq!(third.1, REFUSED);
    respond(&mut waiting);
    events.take();
    assert_eq!((settled(&mut second), tokens()), (None, Some(0)));
    third = calls.call(0);
    assert_eq!(third.1, REFUSED);
    assert!(events.take().contains(&("rate".to_owned(), "refused", 1)));
    assert_eq!(store.stats().waiting, 0);
}

/// The rate may be used up at its turn: then the call is refused, and the next one has its turn.
#[tokio::test(start_paused = true)]
async fn a_turn_may_end_with_a_refusal() {
    let store = Local::new();
    let rate = Limit::new(rule("token-bucket 3/1h"))
        .named("rate")
        .key(by_key);
    let service = RateLimitLayer::new(rule("in-flight 2 wait-at-most=1s"))
        .store(store.clone())
        .also(rate)
        .layer(handler());
    let mut calls = Calls::new(service);
    let (mut open, _other) = (calls.begin(0), calls.begin(0));
    let (mut first, mut second) = (calls.begin(0), calls.begin(1));
    // Spends the last token of the first one's key.
    let spent = Limit::new(rule("token-bucket 3/1h"))
        .named("rate")
        .key(by_key);
    let rate = RateLimitLayer::from(spent).store(store.clone());
    let mut rates = Calls::new(rate.layer(handler()));
    let _spent = rates.begin(0);
    respond(&mut open);
    assert_eq!(settled(&mut first), REFUSED);
    assert_eq!((settled(&mut second), calls.begun()), (None, vec![0, 1, 3]));
}

#[tokio::test(start_paused = true)]
async fn a_delay_follows_the_turn() {
    let store = Local::new();
    let queue = Limit::new(rule("leaky-bucket 1/1s queue=5")).named("queue");
    let service = RateLimitLayer::new(rule("in-flight 1 wait-at-most=10s"))
        .store(store.clone())
        .also(queue)
        .layer(handler());
    let mut calls = Calls::new(service);
    let mut open = calls.begin(0);
    let mut waiting = calls.begin(0);
    respond(&mut open);
    assert_eq!((settled(&mut waiting), store.stats().waiting), (None, 0));
    assert_eq!(calls.begun(), [0]);
    tokio::time::sleep(SECOND).await;
    assert_eq!((settled(&mut waiting), calls.begun()), (None, vec![0, 1]));
    // Dropped while it is delayed, it gives its unit to the next one.
    let mut next = calls.begin(0);
    respond(&mut waiting);
    assert_eq!((settled(&mut next), calls.begun().len()), (None, 2));
    let mut last = calls.begin(0);
    drop(next);
    assert!(last.is_woken());
    assert_eq!((settled(&mut last), store.stats().waiting), (None, 0));
}

/// A client that has used up its own limit does not keep others from the common one, although it
/// came first.
#[tokio::test(start_paused = true)]
async fn two_limits_have_lines_of_their_own() {
    let store = Local::new();
    let client = Limit::new(rule("in-flight 2 wait-at-most=1s"))
        .named("client")
        .key(by_key);
    let layer = RateLimitLayer::new(rule("in-flight 3 wait-at-most=1s"))
        .named("total")
        .store(store.clone())
        .also(client);
    let mut calls = Calls::new(layer.layer(handler()));
    let mut open = [calls.begin(1), calls.begin(1)];
    let (mut greedy, mut other) = (calls.begin(1), calls.begin(2));
    assert_eq!((calls.begun(), store.stats().waiting), (vec![0, 1, 3], 1));
    let mut late = calls.begin(2);
    assert_eq!(store.stats().waiting, 2);
    respond(&mut other);
    assert_eq!((settled(&mut late), calls.begun().len()), (None, 4));
    // The client has room again, and the total too: both are given back by one call.
    respond(&mut open[0]);
    assert_eq!((settled(&mut greedy), calls.begun().len()), (None, 5));
    assert_eq!(store.stats().waiting, 0);

    // Now it finds no room in the total at its turn, and waits there, before those who came later.
    let (mut greedy, mut later) = (calls.begin(1), calls.begin(3));
    assert_eq!(store.stats().waiting, 2);
    respond(&mut late);
    // Both limits refuse it, so it is in the line of the first, and changes to the other one.
    assert_eq!((settled(&mut greedy), settled(&mut later)), (None, None));
    assert_eq!(calls.begun(), [0, 1, 3, 4, 2, 6]);
    respond(&mut open[1]);
    assert_eq!((settled(&mut greedy), calls.begun().len()), (None, 7));
    assert_eq!(store.stats().waiting, 0);
}

/// Calls with several limits, each of which waits now for one of them and now for another.
#[tokio::test(start_paused = true)]
async fn calls_that_change_lines_never_stop_each_other() {
    let store = Local::new();
    let limit = |name: &str, most: u64| {
        let own = rule(&format!("in-flight {most} wait-at-most=1h"));
        Limit::new(own).named(name)
    };
    // Keys of two digits: each call needs a unit of either.
    let first =
        limit("first", 2).key(|request: &Request<()>| Some(Key::from(order_of(request).key / 3)));
    let second =
        limit("second", 3).key(|request: &Request<()>| Some(Key::from(order_of(request).key % 3)));
    let layer = RateLimitLayer::from(first)
        .store(store.clone())
        .also(second)
        .also(limit("total", 5));
    let mut calls = Calls::new(layer.layer(handler()));
    let mut random = Random::new(7);
    let (mut open, mut all): (Vec<Call>, Vec<Call>) = Default::default();
    let (mut ended, mut refused) = (0, 0);
    for made in 0.. {
        let rest = made > support::cases(40_000).max(5_000);
        if !rest && random.once_in(2) {
            let (call, status) = calls.call(random.below(9));
            match status {
                Some(_) => refused += 1,
                None => all.push(call),
            }
        } else if !open.is_empty() && random.once_in(2) {
            let at = random.below(open.len() as u64) as usize;
            respond(&mut open.swap_remove(at));
            ended += 1;
        } else if !all.is_empty() && random.once_in(16) {
            drop(all.remove(random.below(all.len() as u64) as usize));
        }
        while let Some(at) = all.iter().position(Call::is_woken) {
            if let Some(status) = all[at].status() {
                assert_eq!(Some(status), REFUSED);
                all.remove(at);
                refused += 1;
            }
        }
        for id in std::mem::take(&mut *calls.begun.lock().unwrap()) {
            let at = all.iter().position(|call| call.id == id).unwrap();
            open.push(all.remove(at));
        }
        // Nothing is woken: no call sleeps that has room in all of its limits.
        for call in &all {
            let count =
                |same: &dyn Fn(&Call) -> bool| open.iter().filter(|open| same(open)).count();
            let has_room = count(&|other| other.key / 3 == call.key / 3) < 2
                && count(&|other| other.key % 3 == call.key % 3) < 3
                && open.len() < 5;
            // Unless an older one is to go first, which then sleeps by one of the other limits.
            let is_oldest = all.iter().all(|other| other.id >= call.id);
            assert!(!(has_room && is_oldest), "call {} sleeps", call.id);
        }
        if rest && all.is_empty() && open.is_empty() {
            break;
        }
        assert!(made < 1_000_000, "{} calls sleep", all.len());
    }
    assert_eq!(store.stats().waiting, 0);
    assert!(ended > 500 && refused > 0, "{ended} {refused}");
}

#[tokio::test(start_paused = true)]
async fn each_of_two_layers_has_its_own_wait() {
    let store = Local::new();
    let layer = |name: &'static str, most| {
        let rule = InFlight::at_most(most).wait_at_most(SECOND);
        RateLimitLayer::new(rule).named(name).store(store.clone())
    };
    let service = layer("outer", 2).layer(layer("inner", 1).layer(handler()));
    let mut calls = Calls::new(service);
    let mut open = calls.begin(0);
    // Holds a unit of the outer layer while it waits for the inner one.
    let mut inside = calls.begin(0);
    let mut outside = calls.begin(0);
    assert_eq!(store.stats().waiting, 2);
    respond(&mut open);
    assert_eq!((settled(&mut inside), settled(&mut outside)), (None, None));
    assert_eq!((calls.begun(), store.stats().waiting), (vec![0, 1], 1));
    drop(inside);
    assert_eq!(
        (settled(&mut outside), calls.begun()),
        (None, vec![0, 1, 2])
    );
}

/// Dry runs and candidates decide when the call has its turn, and once.
#[tokio::test(start_paused = true)]
async fn a_dry_run_counts_a_waiting_call_once() {
    let store = Local::new();
    let dry = Limit::new(rule("token-bucket 9/1h")).named("dry").dry_run();
    let layer = RateLimitLayer::new(rule("in-flight 1 wait-at-most=1s"))
        .store(store.clone())
        .candidate("lower", rule("in-flight 1"))
        .also(dry);
    let mut calls = Calls::new(layer.clone().layer(handler()));
    let spent = || {
        let look = store.look(
            &Policy::new("dry"),
            &rule("token-bucket 9/1h"),
            &Key::GLOBAL,
        );
        9 - look.remaining().unwrap()
    };
    let counted = |name: &str| {
        let report = layer.dry_run_report(name).unwrap();
        report.admitted + report.refused
    };
    let mut open = calls.begin(0);
    let mut waiting = calls.begin(0);
    assert_eq!((spent(), counted("dry"), counted("lower")), (1, 1, 1));
    respond(&mut open);
    assert_eq!(settled(&mut waiting), None);
    assert_eq!((spent(), counted("dry"), counted("lower")), (2, 2, 2));
    respond(&mut waiting);
    let look = |name: &str| store.look(&Policy::new(name), &rule("in-flight 5"), &Key::GLOBAL);
    assert_eq!(look("lower").remaining(), Some(5));
    assert_eq!(look("default").remaining(), Some(5));
    // On a dry run itself, the limit lets nobody wait.
    let layer = RateLimitLayer::new(rule("in-flight 1 wait-at-most=1s")).dry_run();
    let mut calls = Calls::new(layer.layer(handler()));
    let _open = [calls.begin(0), calls.begin(0)];
    assert_eq!(calls.begun().len(), 2);
}

/// A call that is refused because older ones wait stays charged on a dry run, as any refused one.
#[tokio::test(start_paused = true)]
async fn a_refusal_by_the_line_stays_charged_on_a_dry_run() {
    let store = Local::new();
    let rate = Limit::new(rule("token-bucket 9/1h")).named("rate");
    let layer = RateLimitLayer::new(rule("in-flight 1 wait-at-most=1s"))
        .store(store.clone())
        .also(rate.dry_run())
        .also(Limit::new(rule("in-flight 9")).named("calls").dry_run());
    let mut calls = Calls::new(layer.clone().layer(handler()));
    let spent = |name, text: &str| {
        let look = store.look(&Policy::new(name), &rule(text), &Key::GLOBAL);
        9 - look.remaining().unwrap()
    };
    let spent = || {
        (
            spent("rate", "token-bucket 9/1h"),
            spent("calls", "in-flight 9"),
        )
    };
    let counted = || ["rate", "calls"].map(|name| layer.dry_run_report(name).unwrap().admitted);
    let mut open = calls.begin(0);
    let mut waiting = calls.begin(0);
    // There is room, for the call that waits.
    respond(&mut open);
    assert_eq!((spent(), counted()), ((1, 0), [1, 1]));
    assert_eq!(calls.call(0).1, REFUSED);
    assert_eq!((spent(), counted()), ((2, 0), [2, 2]));
    assert_eq!(settled(&mut waiting), None);
    assert_eq!((spent(), counted()), ((3, 1), [3, 3]));
}

#[tokio::test(start_paused = true)]
async fn a_rule_of_the_request_may_let_it_wait_or_not() {
    let store = Local::new();
    let (waits, not) = (rule("in-flight 1 wait-at-most=1s"), rule("in-flight 1"));
    let service = RateLimitLayer::new(rule("token-bucket 9/1h"))
        .store(store.clone())
        .rule(move |request: &Request<()>| match order_of(request).key {
            0 => None,
            1 => Some(waits.clone()),
            _ => Some(not.clone()),
        })
        .layer(handler());
    let mut calls = Calls::new(service);
    let _rate = [calls.begin(0), calls.begin(0)];
    let mut open = calls.begin(1);
    let mut waiting = calls.begin(1);
    assert_eq!(calls.call(2).1, REFUSED);
    respond(&mut open);
    assert_eq!(
        (settled(&mut waiting), calls.begun()),
        (None, vec![0, 1, 2, 3])
    );
}

/// Only the refusal at the end of a wait counts for a block.
#[tokio::test(start_paused = true)]
async fn a_wait_is_one_refusal_at_most() {
    let store = Local::new()
        .with_blocks()
        .block_after(3, 3600 * SECOND, 60 * SECOND)
        .count_calls_in_flight();
    let layer = RateLimitLayer::new(InFlight::at_most(2).wait_at_most(SECOND))
        .store(store.clone())
        .key(by_key);
    let mut calls = Calls::new(layer.layer(handler()));
    let mut open = vec![calls.begin(1), calls.begin(1)];
    // Each is refused at its arrival, and admitted at its turn.
    for _ in 0..8 {
        let mut waiting = calls.begin(1);
        respond(&mut open.remove(0));
        assert_eq!(settled(&mut waiting), None);
        open.push(waiting);
    }
    assert_eq!((calls.begun().len(), store.made()), (10, 0));
    // Two that wait in vain are two refusals, and one beyond the line is the third.
    let mut waiting = [calls.begin(1), calls.begin(1)];
    tokio::time::sleep(SECOND).await;
    assert_eq!(waiting.each_mut().map(settled), [REFUSED, REFUSED]);
    assert_eq!(store.made(), 0);
    let _waiting = [calls.begin(1), calls.begin(1)];
    assert_eq!((calls.call(1).1, store.made()), (REFUSED, 1));
    // A blocked key does not wait.
    assert_eq!(calls.call(1).1, REFUSED);
    assert_eq!(store.get_ref().stats().waiting, 2);
}

/// Beside a limit that lets calls wait, refusals of others count as without it, also if a look
/// decides.
#[tokio::test(start_paused = true)]
async fn refusals_beside_a_wait_count_once() {
    /// Returns the blocks that were made, and the calls that a block refused, after each refusal.
    async fn play<S>(service: S, counts: impl Fn() -> (u64, u64)) -> [(u64, u64); 4]
    where
        S: Service<Request<()>, Response = Reply, Error = &'static str, Future: Send + 'static>
            + Clone,
    {
        let mut calls = Calls::new(service);
        respond(&mut calls.begin(1));
        [(); 4].map(|()| {
            assert_eq!(calls.call(1).1, REFUSED);
            counts()
        })
    }
    for text in ["in-flight 9", "in-flight 9 wait-at-most=1s"] {
        let layer = |decides_by_look| {
            let store = Local::new().with_blocks();
            let store = store.block_after(2, 3600 * SECOND, 60 * SECOND);
            let counts = store.clone();
            let counts = move || (counts.made(), counts.refused());
            let in_flight = Limit::new(rule(text)).key(by_key).boxed();
            let rate = Limit::new(rule("token-bucket 1/1h"));
            let rate = rate.named("rate").key(by_key);
            let rate = match decides_by_look {
                true => rate.charge_after(|_: &Reply| true).boxed(),
                false => rate.boxed(),
            };
            let layer = RateLimitLayer::list(vec![in_flight, rate]).unwrap();
            (layer.store(store).layer(handler()), counts)
        };
        let (service, counts) = layer(false);
        let counted = play(service, counts).await;
        assert_eq!(counted, [(0, 0), (1, 0), (1, 1), (1, 2)], "{text}");
        let (service, counts) = layer(true);
        let counted = play(service, counts).await;
        // A look at a blocked key counts nothing.
        assert_eq!(counted, [(0, 0), (1, 0), (1, 0), (1, 0)], "{text}");
    }
}

/// Lets some calls of a store wait: in order, until one ends, and in vain.
async fn waits_in<S>(name: &str, store: S)
where
    S: Store<InFlight, Error: NeverFails, Answer: Send, Done: Send> + Clone + Send + Sync + 'static,
{
    let layer = RateLimitLayer::new(InFlight::at_most(2).wait_at_most(SECOND))
        .store(store)
        .key(by_key);
    let mut calls = Calls::new(layer.layer(handler()));
    let mut open = [calls.begin(1), calls.begin(1)];
    let mut waiting = [calls.begin(1), calls.begin(1)];
    let _other = calls.begin(2);
    assert_eq!(calls.call(1).1, REFUSED, "{name}");
    respond(&mut open[0]);
    assert_eq!(waiting.each_mut().map(settled), [None, None], "{name}");
    assert_eq!(calls.begun(), [0, 1, 4, 2], "{name}");
    tokio::time::sleep(SECOND).await;
    assert_eq!(waiting.each_mut().map(settled), [None, REFUSED], "{name}");
    drop((open, waiting));
    let _next = [calls.begin(1), calls.begin(1)];
    assert_eq!(calls.begun().len(), 6, "{name}");
}

#[tokio::test(start_paused = true)]
async fn calls_wait_through_every_wrapper() {
    let late = || {
        let store = Faulty::new(Local::<InFlight>::new());
        store.faults().always(Fault::Late(2));
        store
    };
    waits_in("Local", Local::new()).await;
    waits_in("Arc", Arc::new(Local::new())).await;
    waits_in("boxed", Local::new().boxed()).await;
    waits_in("blocks", Local::new().with_blocks()).await;
    let blocks = Local::new().with_blocks();
    let blocks = blocks.block_after(99, SECOND, SECOND);
    waits_in("blocks after", blocks.count_calls_in_flight()).await;
    waits_in("remember", Local::new().remember_refusals()).await;
    waits_in("late", late().fail_open()).await;
    waits_in("closed", late().fail_closed()).await;
    waits_in("boxed late", late().boxed().fail_open()).await;
    waits_in("late blocks", {
        let store = Faulty::new(Local::new());
        store.faults().always(Fault::Late(2));
        store.with_blocks().fail_open()
    })
    .await;
    waits_in("timeout", late().timeout(SECOND).fail_open()).await;
    let breaker = CircuitBreakerConfig::new();
    waits_in("breaker", late().circuit_breaker(breaker).fail_open()).await;
    waits_in(
        "fallback",
        late()
            .fall_back_to(Local::new())
            .rule(|rule: &InFlight| Some(*rule)),
    )
    .await;
    waits_in("remember late", late().remember_refusals().fail_open()).await;
}

/// Counts what a store is asked.
#[derive(Clone)]
struct Counting(Local<InFlight>, Arc<AtomicU64>);

impl Backend for Counting {
    type Error = Infallible;

    delegate!(Backend, self => self.0);
}

impl Store<InFlight> for Counting {
    type Answer = <Local<InFlight> as Store<InFlight>>::Answer;
    type Done = <Local<InFlight> as Store<InFlight>>::Done;

    fn acquire(&self, asks: &[Ask<'_, InFlight>]) -> Check<Self::Answer> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.acquire(asks)
    }
    fn look(&self, asks: &[Ask<'_, InFlight>]) -> Check<Self::Answer> {
        self.1.fetch_add(1, Ordering::Relaxed);
        Store::look(&self.0, asks)
    }
    fn settle(&self, settlements: Vec<Settlement<'_, InFlight>>) -> Check<Self::Done> {
        self.0.settle(settlements)
    }
    fn reset(&self, policy: &Policy, key: &Key) -> Check<Self::Done> {
        Store::<InFlight>::reset(&self.0, policy, key)
    }
    delegate!(Store<InFlight>, self => self.0; fits, fleet);
}

/// The work of a call does not depend on how many wait.
#[tokio::test(start_paused = true)]
async fn a_long_line_makes_no_call_longer() {
    let mut counts = Vec::new();
    for length in [10, 1_000] {
        let asked = Arc::default();
        let store = Counting(Local::new(), Arc::clone(&asked));
        let layer = RateLimitLayer::new(InFlight::at_most(length).wait_at_most(SECOND))
            .store(store)
            .layer(handler());
        let mut calls = Calls::new(layer);
        let asks = |counts: &mut Vec<u64>| counts.push(asked.swap(0, Ordering::Relaxed));
        let open: Vec<_> = (0..length).map(|_| calls.begin(0)).collect();
        asked.store(0, Ordering::Relaxed);
        let mut waiting: Vec<_> = (0..length).map(|_| calls.begin(0)).collect();
        asks(&mut counts);
        for _ in 0..length {
            assert_eq!(calls.call(0).1, REFUSED);
        }
        asks(&mut counts);
        for mut call in open {
            respond(&mut call);
            while let Some(woken) = waiting.iter_mut().find(|call| call.is_woken()) {
                assert_eq!(woken.status(), None);
            }
        }
        asks(&mut counts);
        assert_eq!(calls.begun().len() as u64, 2 * length);
    }
    let [short, long] = [&counts[..3], &counts[3..]];
    for (short, long) in short.iter().zip(long) {
        assert!(long / 1_000 <= short / 10, "{counts:?}");
    }
}

/// A store without lines would refuse calls that are to wait.
#[test]
fn a_store_that_knows_no_lines_is_refused() {
    #[derive(Clone, Debug)]
    struct Plain(Local<InFlight>);
    impl Backend for Plain {
        type Error = Infallible;
    }
    impl Store<InFlight> for Plain {
        type Answer = <Local<InFlight> as Store<InFlight>>::Answer;
        type Done = <Local<InFlight> as Store<InFlight>>::Done;

        delegate!(Store<InFlight>, self => self.0);
    }
    let layer = |rule| RateLimitLayer::new(rule).try_store(Plain(Local::new()));
    assert!(layer(InFlight::at_most(1)).is_ok());
    let waiting = InFlight::at_most(1).wait_at_most(SECOND);
    let error = layer(waiting).unwrap_err();
    assert!(error.to_string().contains("expected `Local`"), "{error}");
    let live = LiveRule::new(waiting);
    let layer = |live| RateLimitLayer::from(Limit::live(live)).try_store(Plain(Local::new()));
    let error = layer(&live).unwrap_err();
    assert!(error.to_string().contains("expected `Local`"), "{error}");
    let live = LiveRule::new(InFlight::at_most(1));
    let _layer = layer(&live).unwrap();
    let error = live.set(waiting).unwrap_err();
    assert!(error.to_string().contains("expected `Local`"), "{error}");
    assert_eq!(live.get(), InFlight::at_most(1));
    // A dry run never waits.
    let dry = Limit::live(&LiveRule::new(waiting)).dry_run();
    assert!(
        RateLimitLayer::from(dry)
            .try_store(Plain(Local::new()))
            .is_ok()
    );
}

/// A call whose wait ends behind another one, at the instant at which there is room, is refused and
/// has spent nothing: its answer says so.
#[tokio::test(start_paused = true)]
async fn the_answer_to_a_wait_that_is_over_shows_nothing_spent() {
    let store = Local::new();
    let bucket = Limit::new(rule("token-bucket 10/1h"))
        .named("bucket")
        .key(by_key);
    let layer = RateLimitLayer::new(rule("in-flight 2 wait-at-most=1s"))
        .named("held")
        .key(by_key)
        .also(bucket)
        .store(store.clone());
    let mut calls = Calls::new(layer.layer(handler()));
    let (open, _other) = (calls.begin(0), calls.begin(0));
    let (_first, mut second) = (calls.begin(0), calls.begin(0));
    tokio::time::advance(SECOND).await;
    drop(open);
    let std::task::Poll::Ready(Ok(response)) = second.poll() else {
        panic!("its wait is over");
    };
    assert_eq!(Some(response.status()), REFUSED);
    let fields = response.headers().get_all("ratelimit").iter();
    let fields: Vec<_> = fields.map(|field| field.to_str().unwrap()).collect();
    let fields = fields.join(", ");
    // The first two have spent one each.
    assert!(fields.contains("\"bucket\";r=8"), "{fields}");
}

#[tokio::test(start_paused = true)]
async fn a_wait_of_a_moment_is_one() {
    let rule = InFlight::at_most(1).wait_at_most(Duration::from_nanos(1));
    let mut calls = Calls::new(RateLimitLayer::new(rule).layer(handler()));
    let _open = calls.begin(0);
    let mut waiting = calls.begin(0);
    tokio::time::sleep(Duration::from_millis(2)).await;
    assert_eq!(settled(&mut waiting), REFUSED);
    let rule = InFlight::at_most(1).wait_at_most(Duration::from_secs(9_000_000_000));
    let mut calls = Calls::new(RateLimitLayer::new(rule).layer(handler()));
    let mut open = calls.begin(0);
    let mut waiting = calls.begin(0);
    respond(&mut open);
    assert_eq!((settled(&mut waiting), calls.begun()), (None, vec![0, 1]));
}
