//! The checker of one law.

use std::{
    collections::VecDeque,
    fmt,
    future::Future,
    hash::{BuildHasher, RandomState},
    time::Duration,
};

use super::{
    Breach, Law, SuiteSettings,
    calls::TestAsk,
    model::{Mismatch, Model, in_words},
    store::{TestedStore, unless},
};
use crate::{
    algorithm::Algorithm,
    decision::{Cost, Decision},
    key::Key,
    policy::Policy,
    time::{Clock, SystemClock, Timestamp},
};

/// The number of calls in a report.
const MAX_SHOWN: usize = 24;

pub(super) type CheckResult = Result<(), Breach>;

/// Calls a store for one law, records the calls, and compares the answers with the rule.
pub(super) struct Checker<'a, R: Algorithm> {
    pub(super) store: &'a dyn TestedStore<R>,
    pub(super) suite: &'a SuiteSettings<R>,
    law: Law,
    nonce: u64,
    subjects: u32,
    pub(super) model: Model<R>,
    pub(super) under: String,
    trace: VecDeque<String>,
    earlier: usize,
    pub(super) calls: u64,
    /// The time after which an answer is late: a quarter of the shortest lease of the rules in this
    /// sequence. Stores allow a third.
    late_after: Option<Duration>,
    /// `true` if an answer of this sequence was late.
    pub(super) is_late: bool,
    /// `true` if calls could be counted under a rule.
    has_counted: bool,
}

/// Returns a cost of `units` units, at least 1.
pub(super) fn cost(units: u64) -> Cost {
    Cost::new(units).unwrap_or(Cost::ONE)
}

impl<'a, R: Algorithm> Checker<'a, R> {
    pub(super) fn new(
        store: &'a dyn TestedStore<R>,
        suite: &'a SuiteSettings<R>,
        law: Law,
    ) -> Self {
        Self {
            store,
            suite,
            law,
            nonce: nonce(),
            subjects: 0,
            model: Model::new(suite.step),
            under: String::new(),
            trace: VecDeque::new(),
            earlier: 0,
            calls: 0,
            late_after: None,
            is_late: false,
            has_counted: false,
        }
    }

    /// Checks the law under each rule by itself.
    pub(super) async fn each(
        &mut self,
        check: impl AsyncFn(&mut Self, &R) -> CheckResult,
    ) -> CheckResult {
        for rule in &self.suite.rules {
            self.begin(rule);
            check(self, rule).await?;
        }
        Ok(())
    }

    /// Checks a law that counts calls under each rule by itself.
    pub(super) async fn each_counted(
        &mut self,
        check: impl AsyncFn(&mut Self, &R) -> CheckResult,
    ) -> CheckResult {
        self.each(check).await?;
        if self.has_counted {
            return Ok(());
        }
        Err(self.unchecked(
            "calls can be counted under no rule; give the suite a rule that admits three calls and refills after \
             20 s or later, as `5/1h`",
        ))
    }

    /// Starts a new sequence of calls, with new keys and an empty record.
    pub(super) fn begin(&mut self, rule: &R) {
        self.nonce = self.nonce.wrapping_add(1);
        self.under = format!("{rule:?}");
        self.model = Model::new(self.suite.step);
        self.trace.clear();
        self.earlier = 0;
        self.is_late = false;
        self.late_after = None;
        self.regard(rule);
    }

    /// Regards the lease of a rule, if it has one, for what is late.
    pub(super) fn regard(&mut self, rule: &R) {
        let late_after = rule.renewal().map(|renewal| renewal.lease / 4);
        self.late_after = self.late_after.into_iter().chain(late_after).min();
    }

    /// Returns a new key under the law's policy.
    pub(super) fn subject(&mut self, name: &str) -> Subject {
        self.subjects += 1;
        let key = Key::join([
            Key::from(name),
            Key::from(self.nonce),
            Key::from(u64::from(self.subjects)),
        ]);
        self.named(name, "", key)
    }

    /// Returns a given key under a policy of this run.
    pub(super) fn named(&self, name: &str, policy: &str, key: Key) -> Subject {
        let policy = format!("{}-{:016x}{policy}", self.law.name(), self.nonce);
        Subject {
            name: name.to_owned(),
            // Always valid: names are short and printable.
            policy: Policy::try_new(&policy).unwrap_or_default(),
            key,
        }
    }

    pub(super) fn breach(&self, what: impl Into<String>) -> Breach {
        Breach {
            law: self.law,
            under: self.under.clone(),
            what: what.into(),
            calls: self.trace.iter().cloned().collect(),
            earlier: self.earlier,
            seed: None,
        }
    }

    /// Returns the error of a law that could not be checked and was not left out.
    pub(super) fn unchecked(&self, what: &str) -> Breach {
        let law = self.law;
        let what = format!("not checked: {what}, or leave it out by `.without(Law::{law:?})`");
        Breach {
            under: String::new(),
            calls: Vec::new(),
            earlier: 0,
            ..self.breach(what)
        }
    }

    pub(super) fn note(&mut self, line: String) {
        if self.trace.len() == MAX_SHOWN {
            self.trace.pop_front();
            self.earlier += 1;
        }
        self.trace.push_back(line);
    }

    /// Returns `true` if numbers are compared, not only calls counted.
    pub(super) fn is_exact(&self) -> bool {
        self.suite.slack.is_none()
    }

    pub(super) fn moves_time(&self) -> bool {
        self.suite.clock.is_some()
    }

    pub(super) fn compared(
        &self,
        compared: Result<(), Mismatch>,
        answer: &Decision,
    ) -> CheckResult {
        compared.map_err(|Mismatch(decision)| {
            self.breach(format!(
                "the store answers\n    {}\n  but its rule, at the instant of the answer, decides\n    {}",
                in_words(answer),
                in_words(&decision)
            ))
        })
    }
}

/// The maximum time of an answer, if the suite has a `sleep`.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The longest wait if time cannot be moved.
const MAX_SLEEP: Duration = Duration::from_millis(500);
/// The longest wait if a clock can be moved: a year.
const MAX_ADVANCE: Duration = Duration::from_secs(365 * 86_400);

/// Waiting.
impl<R: Algorithm> Checker<'_, R> {
    /// Awaits a future, with a timeout if the suite has a `sleep`.
    pub(super) async fn with_timeout<T>(
        &mut self,
        what: &str,
        future: impl Future<Output = T>,
    ) -> Result<T, Breach> {
        self.calls += 1;
        let clock = SystemClock::default();
        let begun = clock.now();
        let output = match &self.suite.sleep {
            Some(sleep) => unless(future, sleep(TIMEOUT)).await,
            None => Some(future.await),
        };
        let took = clock.now().saturating_since(begun);
        let is_late = self.late_after.is_some_and(|late_after| took > late_after);
        self.is_late |= is_late && output.is_some();
        output.ok_or_else(|| self.breach(format!("{what} is not answered within {TIMEOUT:?}")))
    }

    /// Returns `true` if the suite can wait that long.
    pub(super) fn can_wait(&self, wait: Duration) -> bool {
        match (&self.suite.clock, &self.suite.sleep) {
            (Some(_), _) => wait <= MAX_ADVANCE,
            (None, Some(_)) => wait <= MAX_SLEEP,
            (None, None) => false,
        }
    }

    /// Lets time pass.
    pub(super) async fn pass(&mut self, wait: Duration) {
        match (&self.suite.clock, &self.suite.sleep) {
            (Some(clock), _) => {
                clock.advance(wait);
                self.model.saw(clock.now());
            }
            (None, Some(sleep)) => sleep(wait).await,
            (None, None) => return,
        }
        self.note(format!("{wait:?} pass"));
    }

    /// Lets time pass until the store's time is at least `due`.
    pub(super) async fn until(
        &mut self,
        subject: &Subject,
        rule: &R,
        due: Timestamp,
    ) -> CheckResult {
        let mut least = 1;
        for _ in 0..24 {
            let now = self.look(subject, rule).await?.at();
            if now >= due {
                return Ok(());
            }
            let wait = due.saturating_since(now);
            // The store's clock may have a coarser resolution.
            self.pass(wait.max(Duration::from_nanos(least))).await;
            least *= 2;
        }
        Err(self.breach("the store's time does not advance"))
    }
}

/// The maximum number of counted calls.
pub(super) const MAX_CALLS: u64 = 48;
/// The time without a refill that is needed to count calls while time passes.
const MIN_IDLE: Duration = Duration::from_secs(20);

/// All calls of one cost that pass at once for a new key.
pub(super) struct Burst {
    pub(super) units: u64,
    pub(super) calls: u64,
    /// The remaining units after each call.
    pub(super) left: Vec<u64>,
    /// The instant of the count.
    pub(super) at: Timestamp,
}

/// Counting of admitted calls.
impl<R: Algorithm> Checker<'_, R> {
    /// Spends all units in some 50 calls. Returns the answer to one more call.
    pub(super) async fn exhaust(
        &mut self,
        subject: &Subject,
        rule: &R,
    ) -> Result<Decision, Breach> {
        let mut left = self.look(subject, rule).await?.remaining().unwrap_or(0);
        let units = left / 32 + 1;
        for _ in 0..MAX_CALLS {
            if left == 0 {
                break;
            }
            let answer = self.acquire(subject, rule, units.min(left)).await?;
            left = answer.remaining().unwrap_or(0);
        }
        self.acquire(subject, rule, 1).await
    }

    /// Returns all calls that pass at once for this new key.
    ///
    /// Returns `None` if fewer than `least` pass, or units are refilled too soon to count calls.
    pub(super) async fn burst(
        &mut self,
        subject: &Subject,
        rule: &R,
        least: u64,
    ) -> Result<Option<Burst>, Breach> {
        let look = self.look(subject, rule).await?;
        let (own, at) = (subject.own(rule), look.at());
        let fresh = own.look(None, at).remaining().unwrap_or(0);
        let units = if fresh <= MAX_CALLS {
            1
        } else {
            fresh.div_ceil(MAX_CALLS / 2)
        };
        let (mut state, mut left) = (None, Vec::new());
        // A rule may admit more than its remaining units, for example one of several buckets.
        for _ in 0..2 * MAX_CALLS {
            let decision = own.step(&mut state, at, cost(units)).decision();
            if !decision.is_admitted() {
                break;
            }
            left.push(decision.remaining().unwrap_or(0));
        }
        let calls = left.len() as u64;
        let more = own.look(state.as_ref(), at).more_after();
        // The wait of a call in flight is a guess: its units come back when its hold is over.
        let held_until = state.as_ref().map(|state| own.forgettable_at(state));
        let is_held = look.is_in_flight()
            && held_until.is_some_and(|end| end.saturating_since(at) >= MIN_IDLE);
        let is_still = self.moves_time() || more.is_zero() || more >= MIN_IDLE || is_held;
        let is_counted = is_still && (least..2 * MAX_CALLS).contains(&calls);
        self.has_counted |= is_counted;
        Ok(is_counted.then_some(Burst {
            units,
            calls,
            left,
            at,
        }))
    }

    /// Returns `false` if the first call of a new key was refused though its rule admits it.
    pub(super) fn is_like_new(&self, subject: &Subject, rule: &R, first: &Decision) -> bool {
        let fresh = subject.own(rule).look(None, first.at()).remaining();
        let under = self.suite.slack.unwrap_or_default().under;
        first.is_admitted() || fresh <= Some(under)
    }

    /// Makes calls until one is refused. Returns the number of admitted ones.
    pub(super) async fn count_admitted(
        &mut self,
        subject: &Subject,
        rule: &R,
        burst: &Burst,
    ) -> Result<u64, Breach> {
        let mut passed = 0;
        for _ in 0..burst.calls + MAX_CALLS {
            let asked = [TestAsk::new(subject, rule, burst.units)];
            if !self.decided(&asked, false).await?[0].is_admitted() {
                break;
            }
            passed += 1;
        }
        Ok(passed)
    }

    /// Checks the number of admitted calls. `unknown` more calls may have been charged.
    pub(super) fn counted(&self, burst: &Burst, passed: u64, unknown: u64) -> CheckResult {
        if !self.moves_time() && self.model.newest().saturating_since(burst.at) >= MIN_IDLE {
            // The machine was too slow to count: units were refilled.
            return Ok(());
        }
        let slack = self.suite.slack.unwrap_or_default();
        let max = burst.calls + slack.over.div_ceil(burst.units);
        let min = burst
            .calls
            .saturating_sub(unknown + slack.under.div_ceil(burst.units));
        if (min..=max).contains(&passed) {
            return Ok(());
        }
        let right = if min == max {
            format!("{max}")
        } else {
            format!("{min} to {max}")
        };
        Err(self.breach(format!(
            "{passed} calls for {} passed, but its rule lets {right} pass at once",
            burst.units
        )))
    }
}

/// A key under a policy, with a name for messages.
#[derive(Clone)]
pub(super) struct Subject {
    pub(super) name: String,
    pub(super) policy: Policy,
    pub(super) key: Key,
}

impl Subject {
    /// Returns the rule of this key.
    pub(super) fn own<R: Algorithm>(&self, rule: &R) -> R {
        rule.for_key(&|| self.key.digest())
            .unwrap_or_else(|| rule.clone())
    }
}

impl PartialEq for Subject {
    /// Compares the name of the policy and the key, as stores do.
    fn eq(&self, other: &Self) -> bool {
        (self.policy.name(), &self.key) == (other.policy.name(), &other.key)
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Returns a random number for the names of a run, so that states of earlier runs on a server do
/// not matter.
pub(super) fn nonce() -> u64 {
    // The standard library's keys come from the operating system.
    RandomState::new().hash_one(0_u64)
}
