//! Callers at once.

use std::fmt::Debug;

use super::super::{
    Law,
    bench::{Bench, Kept, Lot, cost},
    place::Place,
    report::Breach,
    spawn::{Owned, Task},
};
use crate::{algorithm::Algorithm, store::Store, time::Timestamp};

/// As many tasks race.
const TASKS: usize = 8;
/// How often each race is run.
const ROUNDS: usize = 3;

/// What came out of a race.
#[derive(Default)]
struct Raced {
    admitted: u64,
    failed: u64,
    /// What was left after each admission of the first ask.
    left: Vec<u64>,
}

impl<R, S> Bench<'_, R, S>
where
    R: Algorithm + Debug,
    S: Store<R, Error: Debug>,
{
    pub(in super::super) async fn race(&mut self) -> Kept {
        let mut checked = 0;
        for rule in &self.suite.rules {
            for _ in 0..ROUNDS {
                self.begin(rule);
                let hot = self.place("hot");
                let Some(lot) = self.lot(&hot, rule, 1).await? else {
                    break;
                };
                checked += 1;
                self.for_one_key(&hot, rule, &lot).await?;
                if !self.suite.leaves_out(Law::Several) {
                    self.for_two_keys(rule, &lot).await?;
                }
                if !self.suite.leaves_out(Law::Settle) {
                    self.with_refunds(rule, &lot).await?;
                }
            }
        }
        if checked == 0 {
            return Err(self.nothing_counted());
        }
        Ok(())
    }

    async fn for_one_key(&mut self, hot: &Place, rule: &R, lot: &Lot) -> Kept {
        let ask = |_| vec![Owned::new(hot, rule, lot.units)];
        let mut raced = self.raced("for one key", lot, ask, false).await?;
        self.counted(lot, raced.admitted, raced.failed)?;
        let mut left = lot.left.clone();
        left.sort_unstable();
        raced.left.sort_unstable();
        if self.suite.slack.is_none() && raced.failed == 0 && raced.left != left {
            return Err(self.breach(format!(
                "the answers tell that {:?} are left, and one after the other they would tell {left:?}",
                raced.left
            )));
        }
        let passed = self.pass_now(hot, rule, lot).await?;
        self.counted(lot, raced.admitted + passed, raced.failed)
    }

    /// All or nothing, in both orders.
    async fn for_two_keys(&mut self, rule: &R, lot: &Lot) -> Kept {
        let (alice, bob) = (self.place("alice"), self.place("bob"));
        let ask = |n: usize| {
            let (first, second) = if n.is_multiple_of(2) {
                (&alice, &bob)
            } else {
                (&bob, &alice)
            };
            [first, second]
                .map(|place| Owned::new(place, rule, lot.units))
                .into()
        };
        let raced = self.raced("for two keys", lot, ask, false).await?;
        // What was settled back was in others' way meanwhile.
        let unknown = if self.suite.settles_back {
            lot.calls
        } else {
            raced.failed
        };
        self.counted(lot, raced.admitted, unknown)?;
        let unknown = if gives_all_back(&alice.own(rule), lot) {
            raced.failed
        } else {
            unknown
        };
        for place in [&alice, &bob] {
            let passed = self.pass_now(place, rule, lot).await?;
            self.counted(lot, raced.admitted + passed, unknown)?;
        }
        Ok(())
    }

    /// Everything that passes is given back.
    async fn with_refunds(&mut self, rule: &R, lot: &Lot) -> Kept {
        let carol = self.place("carol");
        let ask = |_| vec![Owned::new(&carol, rule, lot.units)];
        let raced = self
            .raced("for one key, with refunds", lot, ask, true)
            .await?;
        let look = self.try_look(&carol, rule).await?;
        let (left, now) = match look {
            Ok(look) => (look.remaining().unwrap_or(0), look.at()),
            Err(error) => return Err(self.breach(format!("the store failed: {error}"))),
        };
        let own = carol.own(rule);
        let told = |state: Option<R::State>, at| {
            let look = own.look(state.as_ref(), at);
            look.remaining().unwrap_or(0)
        };
        let [each, together] = refunded(&own, lot).map(|state| told(state, lot.at));
        let apart = refunded_apart(&own, lot, now).map(|state| told(state, now));
        let least = apart.into_iter().fold(each.min(together), u64::min);
        let most = each.max(together);
        if left > most || (left < least && raced.failed == 0) {
            return Err(self.breach(format!(
                "{left} are left where everything was given back: one after the other it would be {least} to {most}"
            )));
        }
        Ok(())
    }

    async fn raced(
        &mut self,
        what: &str,
        lot: &Lot,
        ask: impl Fn(usize) -> Vec<Owned<R>>,
        settle: bool,
    ) -> Result<Raced, Breach> {
        let Some(racer) = &self.suite.racer else {
            return Err(self.unchecked(
                "nobody can call the store at once; give the suite a way to spawn by `.spawn(…)`",
            ));
        };
        let each = lot.calls as usize / TASKS + 2;
        let tasks = (0..TASKS).map(|task| {
            let calls = (0..each).map(|n| ask(task + n)).collect();
            Task { calls, settle }
        });
        let line = format!(
            "{TASKS} tasks race {what}, with {each} calls each for {}",
            lot.units
        );
        let race = racer(&self.suite.store, tasks.collect());
        let raced = self.patiently(&line, race).await?;
        self.calls += (TASKS * each) as u64;
        self.note(line);
        let Some(raced) = raced else {
            return Err(self.breach(
                "a task did not come to its end: a call panicked, or what spawns has dropped it",
            ));
        };
        let mut sum = Raced::default();
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

/// What a rule remembers where all calls of a lot were given back: each at once, or all in the end.
fn refunded<R: Algorithm>(rule: &R, lot: &Lot) -> [Option<R::State>; 2] {
    [1, lot.calls].map(|together| {
        let mut state = None;
        for _ in 0..lot.calls / together {
            let charges: Vec<_> = (0..together)
                .filter_map(|_| {
                    let step = rule.step(&mut state, lot.at, cost(lot.units));
                    step.decision().charge()
                })
                .collect();
            for charge in charges {
                rule.settle(&mut state, &charge, lot.at, 0);
            }
        }
        state
    })
}

/// The same where some calls came `later` than the others, before any was given back: of what refill has restored meanwhile,
/// some rules give back less. By how much depends on how many came later, and on the order in which they are given back.
fn refunded_apart<R: Algorithm>(
    rule: &R,
    lot: &Lot,
    later: Timestamp,
) -> impl Iterator<Item = Option<R::State>> {
    let early = [1, 2, lot.calls.saturating_sub(1)];
    early.into_iter().flat_map(move |early| {
        let early = early.min(lot.calls) as usize;
        [false, true].map(|later_first| {
            let (mut state, mut charges) = (None, Vec::new());
            for call in 0..lot.calls as usize {
                let at = if call < early { lot.at } else { later };
                let step = rule.step(&mut state, at, cost(lot.units));
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

/// Whether a rule lets all pass again that was given back.
fn gives_all_back<R: Algorithm>(rule: &R, lot: &Lot) -> bool {
    refunded(rule, lot).into_iter().all(|mut state| {
        (0..lot.calls).all(|_| {
            let step = rule.step(&mut state, lot.at, cost(lot.units));
            step.decision().is_admitted()
        })
    })
}
