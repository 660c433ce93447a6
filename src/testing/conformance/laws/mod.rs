//! The laws of stores, and by theme the calls that check each.

mod keys;
mod limits;
mod nodes;
mod races;
mod renewals;

use std::{fmt, time::Duration};

use super::{
    calls::TestAsk,
    checker::{CheckResult, Checker, Subject},
};
use crate::{
    algorithm::{Algorithm, Renewal},
    decision::Charge,
    random::SharedRandom,
    time::{Clock, Timestamp},
};

/// Declares the laws, each with its name and a sentence.
macro_rules! laws {
    ($($(#[$doc:meta])+ $Law:ident = $name:literal: $sentence:literal,)+) => {
        /// A law that every store must keep.
        ///
        /// # Examples
        ///
        /// ```
        /// use tollgate::testing::conformance::Law;
        ///
        /// assert_eq!(Law::Limit.to_string(), "limit: a rule admits exactly its limit");
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Law {
            $($(#[$doc])+ $Law,)+
        }

        impl Law {
            /// All laws, in the order in which they are checked.
            pub const ALL: [Self; 19] = [$(Self::$Law),+];

            /// Returns the name of the law, one word.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$Law => $name,)+
                }
            }

            /// Returns the law as a sentence.
            pub const fn sentence(self) -> &'static str {
                match self {
                    $(Self::$Law => $sentence,)+
                }
            }
        }
    };
}

laws! {
    /// A rule admits exactly its limit, and the remaining units count down to it.
    Limit = "limit": "a rule admits exactly its limit",
    /// A refused call spends nothing, however often it is repeated.
    Refusal = "refusal": "a refused call spends nothing",
    /// A cost above the capacity never passes, has no wait, and changes nothing.
    Never = "never": "a cost above the capacity never passes, has no wait, and changes nothing",
    /// A look changes nothing, and predicts the next call.
    Look = "look": "a look changes nothing, and predicts the next call",
    /// A refused call passes after its wait, and not before; or, if the rule counts [calls in
    /// flight](crate::InFlight), when another call has ended. With a
    /// [clock](super::Suite::clock): a step back creates no units.
    Wait = "wait": "a refused call passes after its wait, or when another one has ended, and not before",
    /// Keys and policies of any kind and length share no state, also when new keys flood the store.
    Keys = "keys": "keys and policies share no state",
    /// Several asks are charged together or not at all, and answered in order.
    Several = "several": "several asks are charged together or not at all, and answered in order",
    /// A settled charge costs its actual cost: nothing, a part, or more than was charged.
    Settle = "settle": "a settled charge costs its actual cost, and is not counted as failed",
    /// What calls hold stays held from the departure on to which it is
    /// [renewed](crate::store::Store::renew), and comes back after the
    /// [lease](crate::InFlight::lease) if it is not; renewals admit nothing beyond the limit, and
    /// their results are true. Nothing is checked without a rule that has a lease.
    Renew = "renew": "what calls hold lasts as long as it is renewed, and comes back after its lease",
    /// A reset key is like a new one, and other keys are unaffected.
    Reset = "reset": "a reset key is like a new one, and other keys are unaffected",
    /// A change of the rule creates no units.
    Change = "change": "a change of the rule creates no units",
    /// Tokens that a rule [keeps free](crate::TokenBucket::keep_free) are left to the other rules
    /// of its bucket, and its refusals refuse none of their calls. Nothing is checked without a
    /// rule that keeps tokens free and one of the same bucket that keeps fewer.
    Reserve = "reserve": "tokens that a rule keeps free are left to other rules of its bucket",
    /// Rules of several [kinds](crate::algorithm::Algorithm::state_kind) on one key have one limit
    /// each, in any order of calls, and a reset clears the states of all kinds.
    Kinds = "kinds": "rules of several kinds have one limit each, and a reset clears all of them",
    /// Concurrent callers share one limit.
    Race = "race": "concurrent callers share one limit",
    /// A dropped call is charged at most once, and blocks no other.
    Cancel = "cancel": "a dropped call is charged at most once, and blocks no other",
    /// A fault is reported, costs at most one charge, and has no lasting effect. Checked only if
    /// the suite can [cause one](super::Suite::fault).
    Fault = "fault": "a fault is reported, costs at most one charge, and has no lasting effect",
    /// Each node is counted once, in its period and policy. Nothing is checked of a store that
    /// [cannot count](crate::store::driver::FleetStore::count_node).
    Nodes = "nodes": "each node is counted once, in its period and policy",
    /// Units that nodes admitted by themselves are added once. Nothing is checked of a store that
    /// [takes no deltas](crate::store::driver::FleetStore::sync).
    Sync = "sync": "what nodes admitted by themselves is added once, and the state comes back",
    /// The store decides as its rule does, in random sequences of calls.
    Timeline = "timeline": "the store decides as its rule does, in any sequence of calls",
}

impl Law {
    /// Returns `true` if the law can be checked by counting admitted calls, without comparing
    /// numbers.
    pub(crate) const fn only_counts(self) -> bool {
        matches!(
            self,
            Self::Limit
                | Self::Never
                | Self::Keys
                | Self::Reset
                | Self::Reserve
                | Self::Race
                | Self::Cancel
                | Self::Fault
                | Self::Nodes
        )
    }
}

impl fmt::Display for Law {
    /// Writes the name and the sentence.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name(), self.sentence())
    }
}

/// The number of events in one timeline.
const EVENTS: usize = 80;
const MONTH: u64 = 30 * 86_400_000_000_000;
/// The instant after which a clock is not moved forward: 2^63 ns less a century.
const LAST: u64 = (1 << 63) - 100 * 366 * 86_400_000_000_000;

/// The keys of one timeline, and its state.
struct Timeline<'a, R> {
    random: SharedRandom,
    rules: &'a [R],
    /// The index of the first key's rule; the others have the rules after it.
    first: usize,
    subjects: Vec<Subject>,
    charges: Vec<(usize, R, Charge)>,
    /// The latest waits, and the numbers of the rule that returned them.
    retry: Timestamp,
    reset: Timestamp,
    limit: u64,
    period: u64,
}

impl<R: Algorithm> Timeline<'_, R> {
    /// Returns a key, and the rule of this call, which is mostly the key's own.
    fn who(&self, may_change: bool) -> (usize, R) {
        let who = self.random.index(self.subjects.len());
        let rule = if may_change && self.random.once_in(8) {
            self.random.index(self.rules.len())
        } else {
            self.first + who
        };
        (who, self.rules[rule % self.rules.len()].clone())
    }

    fn units(&self) -> u64 {
        match self.random.below(12) {
            0 => self.limit,
            1 => self.limit.saturating_add(1),
            2 => u64::MAX,
            3..=5 => 1 + self.random.below(self.limit),
            _ => 1,
        }
    }

    /// Returns the nanoseconds to move the clock by at `now`.
    fn step(&self, now: Timestamp) -> u64 {
        let until = |promised: Timestamp| promised.saturating_since(now).as_nanos() as u64;
        let step = match self.random.below(8) {
            0 => 1,
            1 => until(self.retry),
            2 => until(self.retry).saturating_sub(1),
            3 => until(self.reset),
            4 => until(self.reset).saturating_sub(1),
            5 => self.random.below(self.period / self.limit.max(1) + 1),
            6 => self.random.below(self.period.saturating_mul(2)),
            _ => self.random.below(self.period),
        };
        step.min(MONTH)
    }
}

impl<R: Algorithm> Checker<'_, R> {
    pub(crate) async fn timelines(&mut self) -> CheckResult {
        for n in 0..self.suite.timelines {
            let seed = self.suite.seed.wrapping_add(n);
            let kept = self.timeline(seed).await;
            if let Some(clock) = &self.suite.clock {
                // The last step may have been back.
                clock.set(clock.now().max(self.model.newest()));
            }
            kept.map_err(|mut breach| {
                breach.seed = Some(seed);
                breach
            })?;
        }
        Ok(())
    }

    async fn timeline(&mut self, seed: u64) -> CheckResult {
        let random = SharedRandom::new(seed);
        let rules = &self.suite.rules;
        let first = random.index(rules.len());
        self.begin(&rules[first]);
        let names = ["alice", "bob", "carol", "dave", "erin", "frank"];
        let mut timeline = Timeline {
            random,
            rules,
            first,
            subjects: names.map(|name| self.subject(name)).into(),
            charges: Vec::new(),
            retry: Timestamp::default(),
            reset: Timestamp::default(),
            limit: 1,
            period: 1,
        };
        for _ in 0..EVENTS {
            self.event(&mut timeline).await?;
        }
        Ok(())
    }

    async fn event(&mut self, timeline: &mut Timeline<'_, R>) -> CheckResult {
        let allows = |law| !self.suite.leaves_out(law);
        let may_change = allows(Law::Change);
        let (who, rule) = timeline.who(may_change);
        let subject = timeline.subjects[who].clone();
        match timeline.random.below(24) {
            0..=1 => {
                self.look(&subject, &rule).await?;
            }
            2..=4 if allows(Law::Several) => self.few(timeline, may_change).await?,
            // Not at an unknown instant, where any result could be correct.
            5..=6 if allows(Law::Settle) && self.moves_time() => self.correct(timeline).await?,
            7 if allows(Law::Reset) => {
                self.reset(&subject).await?;
            }
            8..=11 => self.time(timeline).await,
            _ => {
                let answer = self.acquire(&subject, &rule, timeline.units()).await?;
                timeline.limit = answer.limit().unwrap_or(1);
                timeline.period = answer.quota().map_or(1, |quota| quota.period_nanos());
                timeline.reset = answer.at().saturating_add(answer.reset_after());
                if let Some(wait) = answer.retry_after().filter(|wait| !wait.is_zero()) {
                    timeline.retry = answer.at().saturating_add(wait);
                }
                timeline
                    .charges
                    .extend(answer.charge().map(|charge| (who, rule, charge)));
            }
        }
        Ok(())
    }

    async fn few(&mut self, timeline: &Timeline<'_, R>, may_change: bool) -> CheckResult {
        let count = 2 + timeline.random.index(2);
        let mut who: Vec<_> = (0..count)
            .map(|_| (timeline.who(may_change), timeline.units()))
            .collect();
        if self.suite.settles_back {
            // With two charges of one key, the result depends on the order in which they are
            // settled back.
            who.sort_by_key(|((who, _), _)| *who);
            who.dedup_by_key(|((who, _), _)| *who);
        }
        let asked: Vec<_> = who
            .iter()
            .map(|((who, rule), units)| TestAsk::new(&timeline.subjects[*who], rule, *units))
            .collect();
        self.several(&asked).await.map(drop)
    }

    async fn correct(&mut self, timeline: &mut Timeline<'_, R>) -> CheckResult {
        if timeline.charges.is_empty() {
            return Ok(());
        }
        let index = timeline.random.index(timeline.charges.len());
        let (who, rule, charge) = timeline.charges.swap_remove(index);
        if let Some(Renewal { lease, .. }) = rule.renewal()
            && timeline.random.once_in(2)
        {
            let subject = &timeline.subjects[who];
            let micros = timeline.random.below(lease.as_micros() as u64);
            let delay = Duration::from_micros(micros);
            let renewed = self.renew(subject, &rule, &charge, delay).await?;
            timeline.charges.push((who, rule, renewed));
            return Ok(());
        }
        let actual = match timeline.random.below(4) {
            0 | 1 => 0,
            2 => charge.cost / 2,
            _ => charge.cost.saturating_mul(2),
        };
        let subject = &timeline.subjects[who];
        self.settle_one(subject, &rule, charge, actual).await
    }

    async fn time(&mut self, timeline: &Timeline<'_, R>) {
        let Some(clock) = &self.suite.clock else {
            let pause = Duration::from_micros(timeline.random.below(20_000));
            return self.pass(pause).await;
        };
        let now = clock.now();
        let step = timeline.step(now);
        if timeline.random.once_in(8) {
            let back = Timestamp::from_nanos(now.as_nanos().saturating_sub(step));
            clock.set(back);
            self.note(format!(
                "the clock steps back by {:?}",
                now.saturating_since(back)
            ));
        } else if now.as_nanos() < LAST {
            self.pass(Duration::from_nanos(step)).await;
        }
    }
}
