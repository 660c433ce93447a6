//! Checks of calls that run concurrently, are dropped, or meet a fault.

use std::time::Duration;

use super::{
    super::{
        Breach,
        calls::TestAsk,
        checker::{Burst, CheckResult, Checker, Subject, cost},
        store::{Charges, Task, concurrently, polled},
    },
    Law,
};
use crate::{algorithm::Algorithm, decision::Decision, store::OwnedAsks, time::Timestamp};

/// The number of tasks.
const TASKS: usize = 8;
/// The number of races per rule.
const ROUNDS: usize = 3;

/// The result of a race.
#[derive(Default)]
struct RaceResult {
    admitted: u64,
    failed: u64,
    /// The remaining units after each admission, of the first ask.
    left: Vec<u64>,
}

/// Checks of concurrent callers.
impl<R: Algorithm> Checker<'_, R> {
    pub(crate) async fn race(&mut self, rule: &R) -> CheckResult {
        for _ in 0..ROUNDS {
            self.begin(rule);
            let hot = self.subject("hot");
            let Some(burst) = self.burst(&hot, rule, 1).await? else {
                break;
            };
            self.for_one_key(&hot, rule, &burst).await?;
            if !self.suite.leaves_out(Law::Several) {
                self.for_two_keys(rule, &burst).await?;
            }
            if !self.suite.leaves_out(Law::Settle) {
                self.with_refunds(rule, &burst).await?;
            }
        }
        Ok(())
    }

    async fn for_one_key(&mut self, hot: &Subject, rule: &R, burst: &Burst) -> CheckResult {
        let ask = |_| vec![TestAsk::new(hot, rule, burst.units)];
        let mut raced = self
            .raced("for one key", burst, ask, Charges::default())
            .await?;
        self.counted(burst, raced.admitted, raced.failed)?;
        let mut left = burst.left.clone();
        left.sort_unstable();
        raced.left.sort_unstable();
        if self.suite.slack.is_none() && raced.failed == 0 && raced.left != left {
            return Err(self.breach(format!(
                "the answers have {:?} units left, but sequential calls would have {left:?}",
                raced.left
            )));
        }
        let passed = self.count_admitted(hot, rule, burst).await?;
        self.counted(burst, raced.admitted + passed, raced.failed)
    }

    /// Checks calls with two asks, in both orders.
    async fn for_two_keys(&mut self, rule: &R, burst: &Burst) -> CheckResult {
        let (alice, bob) = (self.subject("alice"), self.subject("bob"));
        let ask = |n: usize| {
            let mut asks = [&alice, &bob].map(|subject| TestAsk::new(subject, rule, burst.units));
            asks.rotate_left(n % 2);
            asks.into()
        };
        let raced = self
            .raced("for two keys", burst, ask, Charges::default())
            .await?;
        // Charges that were settled back may have refused other calls.
        let unknown = if self.suite.settles_back {
            burst.calls
        } else {
            raced.failed
        };
        self.counted(burst, raced.admitted, unknown)?;
        let unknown = if refunds_in_full(&alice.own(rule), burst) {
            raced.failed
        } else {
            unknown
        };
        for subject in [&alice, &bob] {
            let passed = self.count_admitted(subject, rule, burst).await?;
            self.counted(burst, raced.admitted + passed, unknown)?;
        }
        Ok(())
    }

    /// Checks calls whose charges are all settled to 0.
    async fn with_refunds(&mut self, rule: &R, burst: &Burst) -> CheckResult {
        let carol = self.subject("carol");
        let ask = |_| vec![TestAsk::new(&carol, rule, burst.units)];
        let refunds = Charges {
            are_refunded: true,
            ..Charges::default()
        };
        let raced = self
            .raced("for one key, with refunds", burst, ask, refunds)
            .await?;
        let asked = [TestAsk::new(&carol, rule, 1)];
        let look = self.decided(&asked, true).await?[0];
        let (left, now) = (look.remaining().unwrap_or(0), look.at());
        let own = carol.own(rule);
        let remaining = |state: Option<R::State>, at| {
            let look = own.look(state.as_ref(), at);
            look.remaining().unwrap_or(0)
        };
        let [each, merged] = refunded(&own, burst).map(|state| remaining(state, burst.at));
        let separate = refunded_separately(&own, burst, now).map(|state| remaining(state, now));
        let least = separate.into_iter().fold(each.min(merged), u64::min);
        let most = each.max(merged);
        // Refill that restored a part of a charge before its refund is lost: at most that of the
        // time since the race began.
        let is_soon_back = left + 1 == least && look.more_after() <= now.saturating_since(burst.at);
        if left > most || (left < least && !is_soon_back && raced.failed == 0) {
            return Err(self.breach(format!(
                "{left} units are left after all were refunded, but sequential calls would leave {least} to {most}"
            )));
        }
        Ok(())
    }

    /// Checks calls that renew what they hold while others are made: no unit is free meanwhile,
    /// and all of them are once they are given back.
    pub(super) async fn with_renewals(&mut self, rule: &R, delay: Duration) -> CheckResult {
        for _ in 0..ROUNDS {
            for are_refunded in [false, true] {
                self.begin(rule);
                let hot = self.subject("hot");
                let Some(burst) = self.burst(&hot, rule, 2).await? else {
                    return Ok(());
                };
                let ask = |_| vec![TestAsk::new(&hot, rule, burst.units)];
                let charges = Charges {
                    renewed_for: Some(delay),
                    are_refunded,
                };
                let raced = self
                    .raced("for one key, with renewals", &burst, ask, charges)
                    .await?;
                let held = if are_refunded { 0 } else { raced.admitted };
                let passed = self.count_admitted(&hot, rule, &burst).await?;
                self.counted(&burst, held + passed, raced.failed)?;
            }
        }
        Ok(())
    }

    async fn raced<'s>(
        &mut self,
        what: &str,
        burst: &Burst,
        ask: impl Fn(usize) -> Vec<TestAsk<'s, R>>,
        charges: Charges,
    ) -> Result<RaceResult, Breach> {
        // With renewals, some calls must come while others are renewed.
        let more = if charges.renewed_for.is_some() { 4 } else { 2 };
        let each = burst.calls as usize / TASKS + more;
        let owned = |n| {
            let asks: Vec<_> = ask(n).iter().map(TestAsk::ask).collect();
            OwnedAsks::new(&asks)
        };
        let tasks = (0..TASKS).map(|task| {
            let calls = (task..task + each).map(owned).collect();
            Task { calls, charges }
        });
        let Some(race) = self.store.race(tasks.collect()) else {
            return Err(self.unchecked(
                "there are no concurrent callers; give the suite a function that spawns by `.spawn(…)`",
            ));
        };
        let line = format!(
            "{TASKS} tasks race {what}, with {each} calls each for {}",
            burst.units
        );
        let raced = self.with_timeout(&line, race).await?;
        self.calls += (TASKS * each) as u64;
        self.note(line);
        let Some(raced) = raced else {
            return Err(
                self.breach("a task did not end: a call panicked, or the spawned task was dropped")
            );
        };
        let mut sum = RaceResult::default();
        for answer in raced {
            match answer {
                Ok(decisions) if decisions.is_admitted() => {
                    sum.admitted += 1;
                    let first = decisions.as_slice().first();
                    sum.left.extend(first.and_then(|first| first.remaining()));
                }
                Ok(_) => {}
                Err(error) => {
                    sum.failed += 1;
                    self.note(format!("one of them: {error}"));
                }
            }
        }
        Ok(sum)
    }
}

/// Returns the states of a rule after all calls were refunded: each right after the call, or all at
/// the end.
fn refunded<R: Algorithm>(rule: &R, burst: &Burst) -> [Option<R::State>; 2] {
    [1, burst.calls].map(|merged| {
        let mut state = None;
        for _ in 0..burst.calls / merged {
            let charges: Vec<_> = (0..merged)
                .filter_map(|_| {
                    let step = rule.step(&mut state, burst.at, cost(burst.units));
                    step.decision().charge()
                })
                .collect();
            for charge in charges {
                rule.settle(&mut state, &charge, burst.at, 0);
            }
        }
        state
    })
}

/// Returns the states after some calls came `later` than others, and then all were refunded.
///
/// Some rules refund less of a charge that refill has partly restored. The amount depends on the
/// number of later calls and on the order of refunds.
fn refunded_separately<R: Algorithm>(
    rule: &R,
    burst: &Burst,
    later: Timestamp,
) -> impl Iterator<Item = Option<R::State>> {
    let early = [1, 2, burst.calls.saturating_sub(1)];
    early.into_iter().flat_map(move |early| {
        let early = early.min(burst.calls) as usize;
        [false, true].map(|later_first| {
            let (mut state, mut charges) = (None, Vec::new());
            for call in 0..burst.calls as usize {
                let at = if call < early { burst.at } else { later };
                let step = rule.step(&mut state, at, cost(burst.units));
                charges.extend(step.decision().charge());
            }
            if later_first {
                let early = early.min(charges.len());
                charges[..early].reverse();
                charges.rotate_left(early);
            }
            for charge in charges {
                rule.settle(&mut state, &charge, later, 0);
            }
            state
        })
    })
}

/// Returns `true` if a rule admits all calls again after refunds.
fn refunds_in_full<R: Algorithm>(rule: &R, burst: &Burst) -> bool {
    refunded(rule, burst).into_iter().all(|mut state| {
        (0..burst.calls).all(|_| {
            let step = rule.step(&mut state, burst.at, cost(burst.units));
            step.decision().is_admitted()
        })
    })
}

/// The maximum number of dropped calls of one key.
const MAX_DROPS: u64 = 8;

/// Checks of dropped calls.
impl<R: Algorithm> Checker<'_, R> {
    pub(crate) async fn cancel(&mut self, rule: &R) -> CheckResult {
        let alice = self.subject("alice");
        let Some(burst) = self.burst(&alice, rule, 3).await? else {
            return Ok(());
        };
        self.dropped(&[alice], rule, &burst).await?;
        if !self.suite.leaves_out(Law::Several) {
            let two = ["bob", "carol"].map(|name| self.subject(name));
            self.dropped(&two, rule, &burst).await?;
        }
        self.left_behind(rule, &burst).await
    }

    /// Drops calls after several polls, then counts the admitted calls.
    async fn dropped(&mut self, subjects: &[Subject], rule: &R, burst: &Burst) -> CheckResult {
        let asked: Vec<_> = subjects
            .iter()
            .map(|subject| TestAsk::new(subject, rule, burst.units))
            .collect();
        let (mut answered, mut dropped) = (0, 0);
        for n in 0..MAX_DROPS.min((burst.calls - 1) / 2) {
            let polls = n as usize % 5;
            let asks: Vec<_> = asked.iter().map(TestAsk::ask).collect();
            let call = self.store.acquire(&asks);
            let what = format!(
                "a call for {} that is dropped after {polls} polls",
                burst.units
            );
            let answer = self.with_timeout(&what, polled(call, polls)).await?;
            match answer {
                None | Some(Err(_)) => dropped += 1,
                Some(Ok(decisions)) => answered += u64::from(decisions.is_admitted()),
            }
            self.note(what);
        }
        for subject in subjects {
            let passed = self.count_admitted(subject, rule, burst).await?;
            self.counted(burst, answered + passed, dropped)?;
        }
        Ok(())
    }

    /// Drops some of several calls of one key in flight; the others must be answered.
    async fn left_behind(&mut self, rule: &R, burst: &Burst) -> CheckResult {
        let subject = self.subject("dave");
        let asked = TestAsk::new(&subject, rule, burst.units);
        let many = burst.calls.min(MAX_DROPS) as usize;
        let calls: Vec<_> = (0..many)
            .map(|_| self.store.acquire(&[asked.ask()]))
            .collect();
        let line = format!(
            "{many} calls at once for {} of {subject}, the first of them dropped",
            burst.units
        );
        let is_dropped = |n| n == 0 || n == 2;
        let answers = self
            .with_timeout(&line, concurrently(calls, is_dropped))
            .await?;
        self.note(line);
        let (mut admitted, mut unknown) = (0, 0);
        for answer in answers {
            match answer {
                None | Some(Err(_)) => unknown += 1,
                Some(Ok(decisions)) => admitted += u64::from(decisions.is_admitted()),
            }
        }
        let passed = self.count_admitted(&subject, rule, burst).await?;
        self.counted(burst, admitted + passed, unknown)
    }
}

/// The maximum number of calls during the fault.
const MAX_FAULTY_CALLS: u64 = 6;
/// The number of looks after the fault.
const TRIES: usize = 100;
/// The pause after each look.
const PAUSE: Duration = Duration::from_millis(100);

/// Checks of faults.
impl<R: Algorithm> Checker<'_, R> {
    pub(crate) async fn faults(&mut self, rule: &R) -> CheckResult {
        let Some(fault) = &self.suite.fault else {
            return Ok(());
        };
        let alice = self.subject("alice");
        let Some(burst) = self.burst(&alice, rule, 3).await? else {
            return Ok(());
        };
        let calls = MAX_FAULTY_CALLS.min((burst.calls - 1) / 2);
        self.note("the fault begins".to_owned());
        fault(true);
        let met = self
            .call_during_fault(&alice, rule, burst.units, calls)
            .await;
        self.note("the fault ends".to_owned());
        fault(false);
        met?;
        self.come_back(rule).await?;
        let passed = self.count_admitted(&alice, rule, &burst).await?;
        self.counted(&burst, passed, calls)?;
        // The rest of the store works.
        let bob = self.subject("bob");
        self.exhaust(&bob, rule).await.map(drop)
    }

    /// Checks that each call during the fault ends, and that undecided answers have no numbers.
    async fn call_during_fault(
        &mut self,
        subject: &Subject,
        rule: &R,
        units: u64,
        calls: u64,
    ) -> CheckResult {
        let asked = [TestAsk::new(subject, rule, units)];
        for _ in 0..calls {
            for is_look in [false, true] {
                let answer = self.answer(&asked, is_look).await?;
                let invented = |decision: &Decision| {
                    decision.is_undecided()
                        && (decision.limit().is_some() || decision.charge().is_some())
                };
                if answer.is_ok_and(|decisions| invented(&decisions[0])) {
                    return Err(self.breach("an undecided answer has numbers"));
                }
            }
        }
        Ok(())
    }

    /// Waits until the store decides again.
    pub(super) async fn come_back(&mut self, rule: &R) -> CheckResult {
        let nobody = self.subject("nobody");
        let asked = [TestAsk::new(&nobody, rule, 1)];
        for _ in 0..TRIES {
            let look = self.answer(&asked, true).await?;
            if look.is_ok_and(|decisions| !decisions[0].is_undecided()) {
                return Ok(());
            }
            self.pass(PAUSE).await;
            // A circuit breaker may use another clock.
            if let Some(sleep) = self.suite.sleep.as_ref().filter(|_| self.moves_time()) {
                sleep(PAUSE).await;
            }
        }
        Err(self.breach(format!("no answer in {TRIES} looks after the fault")))
    }
}
