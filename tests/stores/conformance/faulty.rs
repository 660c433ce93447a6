//! The faulty store: its faults, their selection, and the wrappers that handle them.

use std::{
    future::{Future, IntoFuture},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use tollgate::{
    AnyRule, Charge, Cost, Policy, TokenBucket,
    future::BoxFuture,
    key::Key,
    store::{
        Local, LocalBuilder, Store, StoreError, StoreExt,
        driver::{Ask, Check, Decisions, Settlement},
    },
    testing::{
        Fault, Faults, Faulty,
        conformance::{Law, Suite},
    },
    time::ManualClock,
};

type Memory = Local<TokenBucket, ManualClock>;
type Answer = <Faulty<Memory> as Store<TokenBucket>>::Answer;

/// Ten units for one key, and calls of 1.
struct Calls {
    store: Faulty<Memory>,
    faults: Faults,
    policy: Policy,
    rule: TokenBucket,
}

impl Calls {
    fn new() -> Self {
        let store = Faulty::new(LocalBuilder::new().clock(ManualClock::default()).build());
        Self {
            faults: store.faults(),
            store,
            policy: Policy::default(),
            rule: TokenBucket::per_hour(10),
        }
    }

    fn acquire(&self) -> Check<Answer> {
        let ask = Ask::new(&self.policy, &self.rule, Key::GLOBAL, Cost::ONE);
        self.store.acquire(&[ask])
    }

    /// Returns the remaining units, without a fault.
    fn left(&self) -> Option<u64> {
        let ask = Ask::new(&self.policy, &self.rule, Key::GLOBAL, Cost::ONE);
        match self.store.look(&[ask]) {
            Check::Ready(Ok(decisions)) => decisions.as_slice()[0].remaining(),
            other => panic!("{other:?}"),
        }
    }

    fn settle(&self, charge: Charge) -> Check<impl Future<Output = Result<(), StoreError>>> {
        let (policy, rule) = (&self.policy, &self.rule);
        self.store.settle(vec![
            Settlement::new(policy, rule, Key::GLOBAL, charge, 0).unwrap(),
        ])
    }
}

/// Counts its wake-ups.
#[derive(Default)]
struct Woken(AtomicU64);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A call in flight, polled by hand.
struct InFlight<F> {
    future: Pin<Box<F>>,
    woken: Arc<Woken>,
}

impl<F: Future> InFlight<F> {
    fn new(call: impl IntoFuture<IntoFuture = F>) -> Self {
        Self {
            future: Box::pin(call.into_future()),
            woken: Arc::default(),
        }
    }

    fn poll(&mut self) -> Poll<F::Output> {
        let waker = Waker::from(self.woken.clone());
        self.future.as_mut().poll(&mut Context::from_waker(&waker))
    }

    fn woken(&self) -> u64 {
        self.woken.0.load(Ordering::SeqCst)
    }
}

fn is_admitted(answer: &Poll<Result<Decisions, StoreError>>) -> bool {
    matches!(answer, Poll::Ready(Ok(decisions)) if decisions.is_admitted())
}

#[tokio::test]
async fn without_a_fault_answers_are_unchanged() {
    let calls = Calls::new();
    assert!(matches!(calls.acquire(), Check::Ready(Ok(_))));
    assert_eq!(calls.left(), Some(9));
    assert_eq!(calls.faults.counts().passed, 2);
}

#[tokio::test]
async fn a_call_that_is_not_decided_is_not_charged() {
    let calls = Calls::new();
    calls.faults.script([Some(Fault::Unavailable)]);
    let error = calls.acquire().await.unwrap_err();
    assert!(error.is_unavailable() && !error.is_timeout() && !error.is_contended());
    assert!(error.to_string().contains("a fault injected by a test"));

    calls.faults.script([Some(Fault::Contended)]);
    let error = calls.acquire().await.unwrap_err();
    assert!(error.is_contended() && !error.is_unavailable() && !error.is_timeout());

    calls.faults.script([Some(Fault::Silent)]);
    let mut silent = InFlight::new(calls.acquire());
    for _ in 0..5 {
        assert!(silent.poll().is_pending());
    }
    assert_eq!(silent.woken(), 0);
    drop(silent);
    assert_eq!(calls.left(), Some(10));
}

#[tokio::test]
async fn a_lost_answer_is_charged() {
    let calls = Calls::new();
    calls.faults.script([Some(Fault::Lost)]);
    let error = calls.acquire().await.unwrap_err();
    assert!(error.is_timeout() && !error.is_unavailable() && !error.is_contended());
    assert_eq!(calls.left(), Some(9));
}

#[tokio::test]
async fn a_late_answer_arrives_after_a_number_of_polls() {
    let calls = Calls::new();
    calls.faults.script([Some(Fault::Late(2))]);
    let mut late = InFlight::new(calls.acquire());
    // The store has decided already.
    assert_eq!(calls.left(), Some(9));
    assert!(late.poll().is_pending() && late.woken() == 1);
    assert!(late.poll().is_pending() && late.woken() == 2);
    assert!(is_admitted(&late.poll()));
    // Awaiting it completes, too.
    calls.faults.script([Some(Fault::Late(7))]);
    assert!(calls.acquire().await.unwrap().is_admitted());
    assert_eq!(calls.left(), Some(8));
}

#[tokio::test]
async fn a_held_answer_waits_for_its_release() {
    let calls = Calls::new();
    calls.faults.always(Fault::Held);
    let [mut first, mut second] = [(); 2].map(|()| InFlight::new(calls.acquire()));
    assert!(first.poll().is_pending() && second.poll().is_pending() && first.poll().is_pending());
    calls.faults.none();
    assert!(first.poll().is_pending(), "a held answer stays pending");
    assert_eq!(calls.left(), Some(8));
    calls.faults.release();
    assert_eq!((first.woken(), second.woken()), (1, 1));
    assert!(is_admitted(&first.poll()) && is_admitted(&second.poll()));
    // A later answer waits for a later release.
    calls.faults.script([Some(Fault::Held)]);
    let mut third = InFlight::new(calls.acquire());
    assert!(third.poll().is_pending());
    calls.faults.release();
    assert!(is_admitted(&third.poll()));
}

#[tokio::test]
async fn faults_apply_to_every_operation() {
    let calls = Calls::new();
    let charged = calls.acquire().await.unwrap().as_slice()[0];
    let charge = || { charged }.take_charge().unwrap();
    let (policy, key) = (&calls.policy, Key::GLOBAL);
    let reset = || Store::<TokenBucket>::reset(&calls.store, policy, &key);
    calls.faults.always(Fault::Unavailable);
    assert!(calls.settle(charge()).await.unwrap_err().is_unavailable());
    assert!(reset().await.unwrap_err().is_unavailable());
    let ask = Ask::new(policy, &calls.rule, key, Cost::ONE);
    assert!(calls.store.look(&[ask]).await.unwrap_err().is_unavailable());
    calls.faults.none();
    assert_eq!(calls.left(), Some(9));
    calls.faults.script([Some(Fault::Lost)]);
    assert!(calls.settle(charge()).await.unwrap_err().is_timeout());
    assert_eq!(calls.left(), Some(10));
}

#[tokio::test]
async fn a_script_takes_precedence_and_runs_once() {
    let calls = Calls::new();
    calls.faults.always(Fault::Contended);
    calls.faults.script([None, Some(Fault::Unavailable)]);
    calls.faults.script([Some(Fault::Lost), None]);
    let mut seen = Vec::new();
    for _ in 0..6 {
        seen.push(match calls.acquire().await {
            Ok(_) => "passed",
            Err(error) if error.is_unavailable() => "unavailable",
            Err(error) if error.is_contended() => "contended",
            Err(_) => "lost",
        });
    }
    let expected = [
        "passed",
        "unavailable",
        "lost",
        "passed",
        "contended",
        "contended",
    ];
    assert_eq!(seen, expected);
    let counts = calls.faults.counts();
    assert_eq!((counts.passed, counts.unavailable), (2, 1));
    assert_eq!((counts.lost, counts.contended), (1, 2));
    calls.faults.script([Some(Fault::Lost); 9]);
    calls.faults.none();
    assert!(calls.acquire().await.is_ok(), "the script is used up");
}

#[tokio::test]
async fn random_faults_are_equal_for_equal_seeds() {
    let run = async |seed| {
        let calls = Calls::new();
        let faults = [Fault::Unavailable, Fault::Contended];
        calls.faults.by_chance(seed, 4, faults);
        let mut hits = Vec::new();
        for _ in 0..1_000 {
            hits.push(calls.acquire().await.is_err());
        }
        let counts = calls.faults.counts();
        let [some, others] = [counts.unavailable, counts.contended];
        assert!(
            (80..170).contains(&some) && (80..170).contains(&others),
            "{counts:?}"
        );
        hits
    };
    assert_eq!(run(1).await, run(1).await);
    assert_ne!(run(1).await, run(2).await);
    let calls = Calls::new();
    calls.faults.by_chance(1, 1, []);
    assert!(
        calls.acquire().await.is_ok(),
        "an empty list means no faults"
    );
}

fn memory(clock: &ManualClock) -> Faulty<Local<AnyRule, ManualClock>> {
    Faulty::new(LocalBuilder::new().clock(clock.clone()).build())
}

/// Wrappers that pass errors on or replace them work again once the faults end.
#[tokio::test(start_paused = true)]
async fn the_suite_passes_with_faults_that_end() {
    let faults = [
        Fault::Unavailable,
        Fault::Contended,
        Fault::Lost,
        Fault::Late(3),
    ];
    for fault in faults {
        let clock = ManualClock::default();
        let faulty = memory(&clock);
        let handle = faulty.faults();
        let switch = move |on| {
            if on {
                handle.always(fault)
            } else {
                handle.none()
            }
        };
        let only = Law::Fault;
        let bare = Suite::new(faulty.clone()).fault(switch.clone()).only(only);
        let report = bare.clock(clock.clone()).run().await.unwrap();
        assert_eq!(report.kept(), [only]);
        let open = Suite::new(faulty.clone().fail_open()).fault(switch.clone());
        open.clock(clock.clone()).only(only).run().await.unwrap();
        let closed = Suite::new(faulty.fail_closed().boxed()).fault(switch);
        closed.clock(clock).only(only).run().await.unwrap();
    }
}

/// A contended store under load obeys the laws, even if callers cannot know what was charged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_suite_accepts_contention_errors_in_a_race() {
    for fault in [Fault::Contended, Fault::Lost] {
        let clock = ManualClock::default();
        let faulty = memory(&clock);
        let faults = faulty.faults();
        // Each task makes two calls or more, so the script is used up when a race ends.
        let handle = faults.clone();
        let spawn = move |task: BoxFuture<()>| {
            handle.script([None, Some(fault)]);
            tokio::spawn(task)
        };
        let suite = Suite::new(faulty).clock(clock).spawn(spawn);
        suite.only(Law::Race).run().await.unwrap();
        let counts = faults.counts();
        assert!(counts.contended + counts.lost > 500, "{counts:?}");
    }
}
