//! The suite and its settings.

use std::{
    fmt::{self, Debug},
    future::Future,
    pin::Pin,
    time::Duration,
};

use super::{
    Broken, Law, Report,
    checker::Checker,
    rules::rules,
    spawn::{SpawnTasks, spawn_tasks},
};
use crate::{
    algorithm::{Algorithm, AnyRule},
    store::{BoxFuture, Store},
    time::ManualClock,
};

pub(super) type Sleep = Box<dyn Fn(Duration) -> Pin<Box<dyn Future<Output = ()>>>>;

/// Checks a store against the [laws](Law).
///
/// # Examples
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
#[doc(alias("conformance", "compliance", "contract tests"))]
#[must_use = "a suite checks nothing until it is run"]
pub struct Suite<R, S> {
    pub(super) store: S,
    pub(super) rules: Vec<R>,
    pub(super) clock: Option<ManualClock>,
    pub(super) sleep: Option<Sleep>,
    pub(super) spawn_tasks: Option<SpawnTasks<R, S>>,
    pub(super) fault: Option<Box<dyn Fn(bool)>>,
    left_out: Vec<Law>,
    only: Option<Law>,
    pub(super) slack: Option<Slack>,
    pub(super) step: u64,
    pub(super) settles_back: bool,
    pub(super) repeats_deltas: bool,
    pub(super) seed: u64,
    pub(super) timelines: u64,
}

/// The error that a store may have, in units.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Slack {
    pub(super) under: u64,
    pub(super) over: u64,
}

impl<S> Suite<AnyRule, S> {
    /// Creates a suite for a store that runs any rule, with rules of each algorithm.
    ///
    /// The store need not be empty, because each run uses new names of policies. It needs capacity for five thousand keys.
    pub fn new(store: S) -> Self {
        Self::with_rules(store, rules())
    }
}

impl<R, S> Suite<R, S> {
    /// Creates a suite with rules of your choice.
    ///
    /// Use at least two rules, for [`Law::Change`], and rules of several kinds if the store runs them, for [`Law::Kinds`].
    /// If time cannot be moved, one rule should refill within half a second, as `20/1s`, and one only after 20 s, as
    /// `5/1h`.
    pub fn with_rules(store: S, rules: impl IntoIterator<Item = R>) -> Self {
        Self {
            store,
            rules: rules.into_iter().collect(),
            clock: None,
            sleep: None,
            spawn_tasks: None,
            fault: None,
            left_out: Vec::new(),
            only: None,
            slack: None,
            step: 1,
            settles_back: false,
            repeats_deltas: false,
            seed: 0,
            timelines: 32,
        }
    }

    /// Sets the store's clock, which the suite moves forward and back.
    pub fn clock(self, clock: ManualClock) -> Self {
        Self {
            clock: Some(clock),
            ..self
        }
    }

    /// Sets a function that sleeps, such as `tokio::time::sleep`.
    ///
    /// It is needed for stores whose time cannot be moved, and to report calls that are not answered within half a minute.
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

    /// Sets a function that spawns a task, such as `tokio::spawn`, for concurrent calls of clones of the store.
    ///
    /// A spawned task must run to its end even if `T` is dropped.
    pub fn spawn<T>(self, spawn: impl Fn(BoxFuture<()>) -> T + 'static) -> Self
    where
        R: Algorithm + Send + Sync + 'static,
        S: Store<R, Answer: Send, Done: Send, Error: Debug + Send> + Clone + Send + Sync + 'static,
    {
        Self {
            spawn_tasks: Some(spawn_tasks(spawn)),
            ..self
        }
    }

    /// Sets a function that switches a fault on (`true`) and off (`false`), such as an outage of the store's server.
    ///
    /// While it is on, each call must fail, be undecided, or be answered, and must not hang.
    pub fn fault(self, switch: impl Fn(bool) + 'static) -> Self {
        Self {
            fault: Some(Box::new(switch)),
            ..self
        }
    }

    /// Leaves a law out that the store does not keep, according to its documentation.
    pub fn without(mut self, law: Law) -> Self {
        self.left_out.push(law);
        self
    }

    /// Checks only one law, for example to debug a store that breaks it.
    pub fn only(self, law: Law) -> Self {
        Self {
            only: Some(law),
            ..self
        }
    }

    /// Sets the resolution of the store's clock, to which its waits are rounded up. Default: 1 ns.
    pub fn resolution(self, step: Duration) -> Self {
        let step = u64::try_from(step.as_nanos()).unwrap_or(u64::MAX).max(1);
        Self { step, ..self }
    }

    /// Allows the store to charge several asks one after the other, and to settle the earlier ones back if a later one is
    /// refused. Until then, these charges may refuse other calls.
    pub fn settling_back(self) -> Self {
        Self {
            settles_back: true,
            ..self
        }
    }

    /// Allows the store to add a delta again that arrives twice, because it cannot tell.
    pub fn repeating_deltas(self) -> Self {
        Self {
            repeats_deltas: true,
            ..self
        }
    }

    /// Allows the store to deviate from its rules: to refuse up to `under` units that should pass, or to admit up to `over`
    /// units too many.
    ///
    /// Laws that count calls are checked with this tolerance. The others are left out.
    pub fn tolerance(self, under: u64, over: u64) -> Self {
        Self {
            slack: Some(Slack { under, over }),
            ..self
        }
    }

    /// Sets the seed of the random timelines. Default: 0, so that each run is equal.
    pub fn seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// Sets the number of random timelines, of 80 events each. Default: 32.
    pub fn timelines(self, timelines: u64) -> Self {
        Self { timelines, ..self }
    }

    /// Returns `true` if the law is not checked.
    pub(super) fn leaves_out(&self, law: Law) -> bool {
        self.left_out.contains(&law)
            || (law == Law::Fault && self.fault.is_none())
            || (self.slack.is_some() && !law.only_counts())
    }
}

impl<R, S> Suite<R, S>
where
    R: Algorithm<State: Send + 'static> + Debug,
    S: Store<R, Error: Debug>,
{
    /// Checks all laws that are not left out.
    ///
    /// # Errors
    ///
    /// Returns an error if a law is broken or could not be checked, with the rule, the expected answer, and the calls
    /// before it.
    pub async fn run(self) -> Result<Report, Broken> {
        let (mut report, mut breaches) = (Report::default(), Vec::new());
        for law in Law::ALL {
            if self.leaves_out(law) || self.only.is_some_and(|only| only != law) {
                report.left_out.push(law);
                continue;
            }
            let mut checker = Checker::new(&self, law);
            let kept = match law {
                _ if self.rules.is_empty() => {
                    Err(checker.unchecked("there is no rule; give the suite one"))
                }
                Law::Limit => checker.limit().await,
                Law::Refusal => checker.refusal().await,
                Law::Never => checker.never().await,
                Law::Look => checker.look_only().await,
                Law::Wait => checker.wait().await,
                Law::Keys => checker.keys().await,
                Law::Several => checker.several_asks().await,
                Law::Settle => checker.settles().await,
                Law::Reset => checker.resets().await,
                Law::Change => checker.change().await,
                Law::Kinds => checker.kinds().await,
                Law::Race => checker.race().await,
                Law::Cancel => checker.cancel().await,
                Law::Fault => checker.faults().await,
                Law::Nodes => checker.nodes().await,
                Law::Sync => checker.syncs().await,
                Law::Timeline => checker.timelines().await,
            };
            report.calls += checker.calls;
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
