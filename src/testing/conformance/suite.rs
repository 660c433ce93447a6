//! How the suite is set up and run.

use std::{
    fmt::{self, Debug},
    future::Future,
    pin::Pin,
    time::Duration,
};

use super::{
    Broken, Law, Report,
    bench::Bench,
    rules::rules,
    spawn::{Racer, racer},
};
use crate::{
    algorithm::{Algorithm, AnyRule},
    store::{BoxFuture, Store},
    time::ManualClock,
};

pub(super) type Sleep = Box<dyn Fn(Duration) -> Pin<Box<dyn Future<Output = ()>>>>;

/// Checks a store against the [laws](Law).
///
/// ```
/// use tollgate::{AnyRule, time::ManualClock, store::{Local, LocalBuilder}};
/// use tollgate::testing::conformance::{Law, Suite};
///
/// # #[tokio::main] async fn main() {
/// let clock = ManualClock::default();
/// let store: Local<AnyRule, _> = LocalBuilder::new().clock(clock.clone()).build();
/// let report = Suite::new(store).clock(clock).spawn(tokio::spawn).run().await.unwrap();
/// assert!(report.kept().contains(&Law::Limit));
/// # }
/// ```
pub struct Suite<R, S> {
    pub(super) store: S,
    pub(super) rules: Vec<R>,
    pub(super) clock: Option<ManualClock>,
    pub(super) sleep: Option<Sleep>,
    pub(super) racer: Option<Racer<R, S>>,
    pub(super) fault: Option<Box<dyn Fn(bool)>>,
    left_out: Vec<Law>,
    only: Option<Law>,
    pub(super) slack: Option<Slack>,
    pub(super) step: u64,
    pub(super) settles_back: bool,
    pub(super) seed: u64,
    pub(super) timelines: u64,
}

/// How far a store may miss its rule, in units.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Slack {
    pub(super) under: u64,
    pub(super) over: u64,
}

impl<S> Suite<AnyRule, S> {
    /// Checks a store that runs any rule, under rules of each algorithm.
    ///
    /// The suite's policies bear names that no other run has, so the store may hold what others left there. It
    /// needs room for five thousand keys.
    pub fn new(store: S) -> Self {
        Self::with_rules(store, rules())
    }
}

impl<R, S> Suite<R, S> {
    /// Checks a store under rules of one's own choice.
    ///
    /// Give it two rules or more, for [`Law::Change`], and of several kinds where the store runs them, for [`Law::Kinds`]. Where time cannot be moved, one of them should give its units back
    /// within half a second, as `20/1s`, and one only after 20 s, as `5/1h`.
    pub fn with_rules(store: S, rules: impl IntoIterator<Item = R>) -> Self {
        Self {
            store,
            rules: rules.into_iter().collect(),
            clock: None,
            sleep: None,
            racer: None,
            fault: None,
            left_out: Vec::new(),
            only: None,
            slack: None,
            step: 1,
            settles_back: false,
            seed: 0,
            timelines: 32,
        }
    }

    /// The clock that tells the store the time: the suite moves it, forward and back.
    #[must_use]
    pub fn clock(self, clock: ManualClock) -> Self {
        Self {
            clock: Some(clock),
            ..self
        }
    }

    /// How to sleep, as `tokio::time::sleep`: for stores whose time nobody can move, and to
    /// tell a call that is not answered within half a minute.
    #[must_use]
    pub fn sleep<F>(self, sleep: impl Fn(Duration) -> F + 'static) -> Self
    where
        F: Future<Output = ()> + 'static,
    {
        let sleep: Sleep = Box::new(move |wait| Box::pin(sleep(wait)));
        Self {
            sleep: Some(sleep),
            ..self
        }
    }

    /// How to spawn, as `tokio::spawn`: clones of the store race, on as many threads as the runtime has.
    ///
    /// What is spawned has to run to its end also when `T` is dropped.
    #[must_use]
    pub fn spawn<T>(self, spawn: impl Fn(BoxFuture<()>) -> T + 'static) -> Self
    where
        R: Algorithm + Send + Sync + 'static,
        S: Store<R, Answer: Send, Done: Send, Error: Debug + Send> + Clone + Send + Sync + 'static,
    {
        Self {
            racer: Some(racer(spawn)),
            ..self
        }
    }

    /// How to switch a fault on (`true`) and off again: whatever the store is built to live with.
    ///
    /// While it is on, calls may fail, be undecided, or be answered; but they come to an end.
    #[must_use]
    pub fn fault(self, switch: impl Fn(bool) + 'static) -> Self {
        Self {
            fault: Some(Box::new(switch)),
            ..self
        }
    }

    /// Leaves a law out: the store does not keep it, and its documentation says so.
    #[must_use]
    pub fn without(mut self, law: Law) -> Self {
        self.left_out.push(law);
        self
    }

    /// Checks one law alone: for who looks for what breaks it.
    #[must_use]
    pub fn only(self, law: Law) -> Self {
        Self {
            only: Some(law),
            ..self
        }
    }

    /// The store's clock tells whole steps of so much, and its waits are rounded up to them: 1 ns unless it is set.
    #[must_use]
    pub fn resolution(self, step: Duration) -> Self {
        let step = u64::try_from(step.as_nanos()).unwrap_or(u64::MAX).max(1);
        Self { step, ..self }
    }

    /// The store cannot spend several at once: it settles the earlier ones back when a later one is refused, and they
    /// are in others' way until then.
    #[must_use]
    pub fn settling_back(self) -> Self {
        Self {
            settles_back: true,
            ..self
        }
    }

    /// The store misses its rules: up to `under` units are refused that should pass, or up to `over` units
    /// pass beyond.
    ///
    /// What can be counted is checked within that, all else is left out.
    #[must_use]
    pub fn missing_by(self, under: u64, over: u64) -> Self {
        Self {
            slack: Some(Slack { under, over }),
            ..self
        }
    }

    /// What the random timelines are made from; 0 unless it is set, so that each run makes the same.
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// How many random timelines are run, 80 events each; 32 unless it is set.
    #[must_use]
    pub fn timelines(self, timelines: u64) -> Self {
        Self { timelines, ..self }
    }

    /// Whether the store does not do what the law is about.
    pub(super) fn leaves_out(&self, law: Law) -> bool {
        self.left_out.contains(&law)
            || (law == Law::Fault && self.fault.is_none())
            || (self.slack.is_some() && !law.only_counts())
    }
}

impl<R, S> Suite<R, S>
where
    R: Algorithm + Debug,
    S: Store<R, Error: Debug>,
{
    /// Checks all laws that are not left out.
    ///
    /// # Errors
    ///
    /// When a law is broken, or could not be checked: which, under which rule, what was expected, and the calls
    /// that led there.
    pub async fn run(self) -> Result<Report, Broken> {
        let (mut report, mut breaches) = (Report::default(), Vec::new());
        for law in Law::ALL {
            if self.leaves_out(law) || self.only.is_some_and(|only| only != law) {
                report.left_out.push(law);
                continue;
            }
            let mut bench = Bench::new(&self, law);
            let kept = match law {
                _ if self.rules.is_empty() => {
                    Err(bench.unchecked("there is no rule; give the suite one"))
                }
                Law::Limit => bench.limit().await,
                Law::Refusal => bench.refusal().await,
                Law::Never => bench.never().await,
                Law::Look => bench.look_only().await,
                Law::Wait => bench.wait().await,
                Law::Keys => bench.keys().await,
                Law::Several => bench.several_asks().await,
                Law::Settle => bench.settles().await,
                Law::Reset => bench.resets().await,
                Law::Change => bench.change().await,
                Law::Kinds => bench.kinds().await,
                Law::Race => bench.race().await,
                Law::Cancel => bench.cancel().await,
                Law::Fault => bench.faults().await,
                Law::Timeline => bench.timelines().await,
            };
            report.calls += bench.calls;
            match kept {
                Ok(()) => report.kept.push(law),
                Err(breach) => breaches.push(breach),
            }
        }
        if breaches.is_empty() {
            Ok(report)
        } else {
            Err(Broken { breaches, report })
        }
    }
}

impl<R: Debug, S> Debug for Suite<R, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Suite")
            .field("rules", &self.rules)
            .field("left_out", &self.left_out)
            .finish_non_exhaustive()
    }
}
