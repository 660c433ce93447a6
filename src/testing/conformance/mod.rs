//! A conformance suite for stores.
//!
//! [`Suite`] calls a store through its [`Store`] trait and compares each answer with the decision
//! of the rule at the [instant of the answer](crate::Decision::at). So it depends neither on the
//! store's storage nor on its clock. The page of [`testing`](super) has examples.
//!
//! # Settings
//!
//! | | for | without it |
//! |---|---|---|
//! | [`clock`](Suite::clock) or [`sleep`](Suite::sleep) | waiting, [`Law::Wait`] | that law cannot be checked |
//! | [`sleep`](Suite::sleep) | reporting a call that never ends | the test hangs |
//! | [`spawn`](Suite::spawn) | concurrent callers, [`Law::Race`] | that law cannot be checked |
//! | [`fault`](Suite::fault) | stores that fail, [`Law::Fault`] | that law is left out |
//!
//! A law that cannot be checked is an error, as a broken one is, unless it is [left
//! out](Suite::without).
//!
//! No law is about calls that [wait for their turn](crate::InFlight#waiting): layers keep them in
//! line, beside the store in memory, and a store only decides again.
//!
//! # Stores
//!
//! | store | suite |
//! |---|---|
//! | memory, with a clock of the application | `Suite::new(store).clock(clock).spawn(tokio::spawn)` |
//! | a server that runs a script, or compares and swaps | `Suite::new(store).sleep(tokio::time::sleep).spawn(tokio::spawn)`; [`resolution`](Suite::resolution) if its clock is coarser than nanoseconds |
//! | counters | [`with_rules`](Suite::with_rules) that it supports; [`settling_back`](Suite::settling_back); [`without`](Suite::without) the laws that it does not keep |
//! | leases | [`tolerance`](Suite::tolerance) of the units that a node may hold unused |
//! | periodic synchronisation | `tolerance` of the units that nodes may admit between two of them |
//! | one of those that processes share | once more with [`Alternating`](super::Alternating) around two connections: a store may combine the calls of one connection, which then never [race](Law::Race) |
//! | a wrapper | around a [`Faulty`](super::Faulty) store in memory, switched by the suite's [`fault`](Suite::fault) |

mod calls;
mod checker;
mod laws;
mod model;
mod store;

use std::{
    fmt::{self, Debug},
    future::Future,
    pin::Pin,
    time::Duration,
};

pub use self::laws::Law;
use self::{
    checker::{CheckResult, Checker},
    store::{SpawnTasks, StoreUnderTest, TestedStore, spawn_tasks},
};
use crate::{
    algorithm::{Algorithm, AnyRule},
    store::{BoxFuture, Store},
    time::ManualClock,
};

/// Checks a store against the [laws](Law).
///
/// Stores give back what a call holds under a lease if its answer comes too late, so a law that is
/// broken then is checked again, at most four times.
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
    store: S,
    spawn_tasks: Option<SpawnTasks<R, S>>,
    settings: SuiteSettings<R>,
}

impl<S> Suite<AnyRule, S> {
    /// Creates a suite for a store that runs any rule, with rules of each algorithm.
    ///
    /// The store need not be empty, because each run uses new names of policies. It needs capacity
    /// for five thousand keys.
    pub fn new(store: S) -> Self {
        Self::with_rules(store, rules())
    }
}

impl<R, S> Suite<R, S> {
    /// Creates a suite with rules of your choice.
    ///
    /// Use at least two rules, for [`Law::Change`], and rules of several kinds if the store runs
    /// them, for [`Law::Kinds`]. If time cannot be moved, one rule should refill within half a
    /// second, as `20/1s`, and one only after 20 s, as `5/1h`.
    pub fn with_rules(store: S, rules: impl IntoIterator<Item = R>) -> Self {
        Self {
            store,
            spawn_tasks: None,
            settings: SuiteSettings::new(rules.into_iter().collect()),
        }
    }

    /// Sets the store's clock, which the suite moves forward and back.
    pub fn clock(mut self, clock: ManualClock) -> Self {
        self.settings.clock = Some(clock);
        self
    }

    /// Sets a function that sleeps, such as `tokio::time::sleep`.
    ///
    /// It is needed for stores whose time cannot be moved, and to report calls that are not
    /// answered within half a minute.
    pub fn sleep<F>(mut self, sleep: impl Fn(Duration) -> F + 'static) -> Self
    where
        F: Future<Output = ()> + 'static,
    {
        self.settings.sleep = Some(Box::new(move |wait| Box::pin(sleep(wait))));
        self
    }

    /// Sets a function that spawns a task, such as `tokio::spawn`, for concurrent calls of clones
    /// of the store.
    ///
    /// A spawned task must run to its end even if `T` is dropped.
    pub fn spawn<T>(self, spawn: impl Fn(BoxFuture<()>) -> T + 'static) -> Self
    where
        R: Algorithm,
        S: Store<R, Answer: Send, Error: Debug + Send> + Clone + Send + Sync + 'static,
    {
        Self {
            spawn_tasks: Some(spawn_tasks(spawn)),
            ..self
        }
    }

    /// Sets a function that switches a fault on (`true`) and off (`false`), such as an outage of
    /// the store's server.
    ///
    /// While it is on, each call must fail, be undecided, or be answered, and must not hang.
    pub fn fault(mut self, switch: impl Fn(bool) + 'static) -> Self {
        self.settings.fault = Some(Box::new(switch));
        self
    }

    /// Leaves out a law that the store does not keep, according to its documentation.
    pub fn without(mut self, law: Law) -> Self {
        self.settings.left_out.push(law);
        self
    }

    /// Checks only one law, for example to debug a store that breaks it.
    pub fn only(mut self, law: Law) -> Self {
        self.settings.only = Some(law);
        self
    }

    /// Sets the resolution of the store's clock, to which its waits are rounded up. Default: 1 ns.
    pub fn resolution(mut self, step: Duration) -> Self {
        self.settings.step = u64::try_from(step.as_nanos()).unwrap_or(u64::MAX).max(1);
        self
    }

    /// Allows the store to charge several asks one after the other, and to settle the earlier ones
    /// back if a later one is refused. Until then, these charges may refuse other calls.
    pub fn settling_back(mut self) -> Self {
        self.settings.settles_back = true;
        self
    }

    /// Allows the store to add a delta again that arrives twice, because it cannot tell.
    pub fn repeating_deltas(mut self) -> Self {
        self.settings.repeats_deltas = true;
        self
    }

    /// Allows the store to deviate from its rules: to refuse up to `under` units that should pass,
    /// or to admit up to `over` units too many.
    ///
    /// Laws that count calls are checked with this tolerance. The others are left out.
    pub fn tolerance(mut self, under: u64, over: u64) -> Self {
        self.settings.slack = Some(Slack { under, over });
        self
    }

    /// Sets the seed of the random timelines. Default: 0, so that each run is equal.
    pub fn seed(mut self, seed: u64) -> Self {
        self.settings.seed = seed;
        self
    }

    /// Sets the number of random timelines, of 80 events each. Default: 32.
    pub fn timelines(mut self, timelines: u64) -> Self {
        self.settings.timelines = timelines;
        self
    }
}

impl<R, S> Suite<R, S>
where
    R: Algorithm,
    S: Store<R, Error: Debug>,
{
    /// Checks all laws that are not left out.
    ///
    /// # Errors
    ///
    /// Returns an error if a law is broken or could not be checked, with the rule, the expected
    /// answer, and the calls before it.
    pub async fn run(self) -> Result<Report, Broken> {
        let tested = StoreUnderTest {
            store: &self.store,
            spawn_tasks: self.spawn_tasks.as_ref(),
        };
        check(&tested, &self.settings).await
    }
}

impl<R: Debug, S> Debug for Suite<R, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Suite")
            .field("rules", &self.settings.rules)
            .field("left_out", &self.settings.left_out)
            .finish_non_exhaustive()
    }
}

/// Checks all laws that are not left out.
async fn check<R>(store: &dyn TestedStore<R>, settings: &SuiteSettings<R>) -> Result<Report, Broken>
where
    R: Algorithm,
{
    let (mut report, mut breaches) = (Report::default(), Vec::new());
    for law in Law::ALL {
        if settings.leaves_out(law) || settings.only.is_some_and(|only| only != law) {
            report.left_out.push(law);
            continue;
        }
        match kept(store, settings, law, &mut report.calls).await {
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

/// The most checks of a law while answers come too late.
const TRIES: u32 = 5;

/// Checks a law. It is checked again if it is broken by calls of which one was answered so late
/// that what it holds under a lease may have been over: stores give that back, and fail.
async fn kept<R>(
    store: &dyn TestedStore<R>,
    settings: &SuiteSettings<R>,
    law: Law,
    calls: &mut u64,
) -> CheckResult
where
    R: Algorithm,
{
    let mut tries = 0;
    loop {
        let mut checker = Checker::new(store, settings, law);
        let kept = match law {
            _ if settings.rules.is_empty() => {
                Err(checker.unchecked("there is no rule; give the suite one"))
            }
            Law::Limit => checker.each(Checker::limit).await,
            Law::Refusal => checker.each(Checker::refusal).await,
            Law::Never => checker.each(Checker::never).await,
            Law::Look => checker.each(Checker::look_only).await,
            Law::Wait => checker.wait().await,
            Law::Keys => checker.keys().await,
            Law::Several => checker.several_asks().await,
            Law::Settle => checker.settles().await,
            Law::Renew => checker.each(Checker::renewals).await,
            Law::Reset => checker.each(Checker::resets).await,
            Law::Change => checker.change().await,
            Law::Reserve => checker.reserves().await,
            Law::Kinds => checker.kinds().await,
            Law::Race => checker.each_counted(Checker::race).await,
            Law::Cancel => checker.each_counted(Checker::cancel).await,
            Law::Fault => checker.each_counted(Checker::faults).await,
            Law::Nodes => checker.nodes().await,
            Law::Sync => checker.each(Checker::syncs).await,
            Law::Timeline => checker.timelines().await,
        };
        *calls += checker.calls;
        tries += 1;
        if kept.is_ok() || !checker.is_late || tries == TRIES {
            return kept;
        }
    }
}

type SleepFn = Box<dyn Fn(Duration) -> Pin<Box<dyn Future<Output = ()>>>>;

/// The settings of a suite, without the store.
struct SuiteSettings<R> {
    rules: Vec<R>,
    clock: Option<ManualClock>,
    sleep: Option<SleepFn>,
    fault: Option<Box<dyn Fn(bool)>>,
    left_out: Vec<Law>,
    only: Option<Law>,
    slack: Option<Slack>,
    step: u64,
    settles_back: bool,
    repeats_deltas: bool,
    seed: u64,
    timelines: u64,
}

/// The tolerance of a suite, in units.
#[derive(Clone, Copy, Debug, Default)]
struct Slack {
    under: u64,
    over: u64,
}

impl<R> SuiteSettings<R> {
    fn new(rules: Vec<R>) -> Self {
        Self {
            rules,
            clock: None,
            sleep: None,
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

    /// Returns `true` if the law is not checked.
    fn leaves_out(&self, law: Law) -> bool {
        self.left_out.contains(&law)
            || (law == Law::Fault && self.fault.is_none())
            || (self.slack.is_some() && !law.only_counts())
    }
}

/// Rules of each algorithm: slow ones, whose calls can be counted, and fast ones, whose waits are
/// short.
const RULES: [&str; 23] = [
    "token-bucket 5/1h",
    "token-bucket 5/1h keep-free=2",
    "token-bucket 20/1s burst=3",
    "token-bucket 100/1m burst=150",
    "token-bucket 30/1s burst=4 initial=0",
    "token-bucket 4/1h burst=6 initial=2",
    "leaky-bucket 20/1s queue=4",
    "leaky-bucket 6/1h queue=5",
    "fixed-window 4/1d offset=spread",
    "fixed-window 3/200ms",
    "fixed-window 5/1h from=first-call",
    "sliding-window 6/1h slices=4",
    "sliding-window 4/200ms",
    "sliding-log 4/1h",
    "warm-up 6/s over=2s",
    "warm-up-spaced 20/s over=4s max-wait=1s",
    "cascade 4/1h > 3/1d",
    "cascade 4/1h keep-free=1 > 3/1d keep-free=2",
    "three-color 4/1h burst=4 peak=6/1h peak-burst=6 aware",
    "in-flight 4 lease=1h",
    "in-flight 7 lease=1h",
    "in-flight 3 lease=320ms",
    "token-bucket 6/1h & fixed-window 4/1d",
];

/// Returns the rules.
fn rules() -> impl Iterator<Item = AnyRule> {
    // A test ensures that all of them can be parsed.
    RULES.iter().filter_map(|text| text.parse().ok())
}

/// The result of a suite that a store has passed.
///
/// # Examples
///
/// ```
/// use tollgate::{AnyRule, store::{Local, LocalBuilder}, time::ManualClock};
/// use tollgate::testing::conformance::{Law, Report, Suite};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let clock = ManualClock::default();
/// let store: Local<AnyRule, _> = LocalBuilder::new().clock(clock.clone()).build();
/// let report: Report = Suite::new(store).clock(clock).only(Law::Limit).run().await.unwrap();
/// assert_eq!(report.kept(), [Law::Limit]);
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Report {
    kept: Vec<Law>,
    left_out: Vec<Law>,
    calls: u64,
}

impl Report {
    /// Returns the laws that were checked and kept.
    pub fn kept(&self) -> &[Law] {
        &self.kept
    }

    /// Returns the laws that were not checked, because they were left out or the settings of the
    /// suite do not suffice.
    pub fn left_out(&self) -> &[Law] {
        &self.left_out
    }

    /// Returns the number of calls of the store.
    pub fn calls(&self) -> u64 {
        self.calls
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} laws kept in {} calls", self.kept.len(), self.calls)?;
        if !self.left_out.is_empty() {
            let names: Vec<_> = self.left_out.iter().map(|law| law.name()).collect();
            write!(f, "; left out: {}", names.join(", "))?;
        }
        Ok(())
    }
}

/// The error of a suite: the laws that a store breaks, each with a description and the calls before
/// it.
///
/// `Debug` prints the text of `Display`, so that `unwrap` in a test shows all of it.
///
/// # Examples
///
/// ```
/// use tollgate::{TokenBucket, store::Local, testing::conformance::{Law, Suite}};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// // There is no way to wait, so a law cannot be checked.
/// let suite = Suite::with_rules(Local::<TokenBucket>::new(), [TokenBucket::per_hour(5)])
///     .only(Law::Wait);
/// let broken = suite.run().await.unwrap_err();
/// assert!(broken.laws().eq([Law::Wait]));
/// # }
/// ```
#[derive(Clone)]
pub struct Broken {
    breaches: Vec<Breach>,
    report: Report,
}

impl Broken {
    /// Returns the laws that are broken or could not be checked.
    pub fn laws(&self) -> impl Iterator<Item = Law> + '_ {
        self.breaches.iter().map(|breach| breach.law)
    }

    /// Returns the results of the other laws.
    pub fn report(&self) -> &Report {
        &self.report
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let checked = self.breaches.len() + self.report.kept.len();
        write!(f, "{} of {checked} laws do not hold", self.breaches.len())?;
        for breach in &self.breaches {
            write!(f, "\n\n{breach}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Broken({self})")
    }
}

impl std::error::Error for Broken {}

/// A broken law.
#[derive(Clone)]
struct Breach {
    law: Law,
    /// The rule as text.
    under: String,
    what: String,
    /// The last calls.
    calls: Vec<String>,
    /// The number of calls before those.
    earlier: usize,
    /// The seed of the timeline.
    seed: Option<u64>,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n  ", self.law)?;
        if !self.under.is_empty() {
            write!(f, "under {}: ", self.under)?;
        }
        f.write_str(&self.what)?;
        if !self.calls.is_empty() {
            f.write_str("\n  after")?;
            if self.earlier > 0 {
                write!(f, " {} earlier calls and", self.earlier)?;
            }
            for call in &self.calls {
                write!(f, "\n    {call}")?;
            }
        }
        if let Some(seed) = self.seed {
            write!(
                f,
                "\n  to repeat this timeline: `.only(Law::Timeline).seed({seed}).timelines(1)`"
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::NAMES;

    #[test]
    fn there_are_rules_of_each_algorithm() {
        assert_eq!(rules().count(), RULES.len(), "each can be parsed");
        let names: Vec<_> = RULES
            .map(|text| text.split(' ').next().unwrap_or_default())
            .into();
        for name in NAMES {
            assert!(names.contains(name), "{name}");
        }
    }
}
