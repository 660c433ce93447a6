//! The limit itself, and what must not move it: refusals, costs beyond it, looks.

use std::fmt::Debug;

use super::super::bench::{Bench, Kept, MANY};
use crate::{algorithm::Algorithm, store::Store};

impl<R, S> Bench<'_, R, S>
where
    R: Algorithm + Debug,
    S: Store<R, Error: Debug>,
{
    pub(in super::super) async fn limit(&mut self) -> Kept {
        for rule in &self.suite.rules {
            self.begin(rule);
            let alice = self.place("alice");
            let Some(lot) = self.lot(&alice, rule, 1).await? else {
                // Its numbers are compared all the same.
                self.exhaust(&alice, rule).await?;
                continue;
            };
            let mut passed = 0;
            for _ in 0..lot.calls + MANY {
                let answer = self.acquire(&alice, rule, lot.units).await?;
                if !answer.is_admitted() {
                    break;
                }
                passed += 1;
            }
            self.counted(&lot, passed, 0)?;
            // Costs of all sizes up to what is left, and one more than that.
            let bob = self.place("bob");
            for part in [3, 2, 1, 1] {
                let left = self.look(&bob, rule).await?.remaining().unwrap_or(0);
                self.acquire(&bob, rule, (left / part).max(1)).await?;
            }
        }
        Ok(())
    }

    pub(in super::super) async fn refusal(&mut self) -> Kept {
        for rule in &self.suite.rules {
            self.begin(rule);
            let alice = self.place("alice");
            let limit = self.look(&alice, rule).await?.limit().unwrap_or(1);
            self.acquire(&alice, rule, limit.div_ceil(2)).await?;
            // The first of them asks for more than is left; later ones for more than ever.
            for units in [limit, limit, limit.div_ceil(2) + 1, limit] {
                self.acquire(&alice, rule, units).await?;
                self.look(&alice, rule).await?;
            }
            self.exhaust(&alice, rule).await?;
            for units in [1, 1, limit, 1, limit.div_ceil(2)] {
                self.acquire(&alice, rule, units).await?;
            }
            self.look(&alice, rule).await?;
        }
        Ok(())
    }

    pub(in super::super) async fn never(&mut self) -> Kept {
        for rule in &self.suite.rules {
            self.begin(rule);
            let (fresh, spent) = (self.place("fresh"), self.place("spent"));
            let look = self.look(&fresh, rule).await?;
            let limit = look.limit().unwrap_or(1);
            let once = self.acquire(&spent, rule, 1).await?;
            for (place, before) in [(&fresh, look), (&spent, once)] {
                for units in [limit.saturating_add(1), 1 << 41, u64::MAX] {
                    let answer = self.acquire(place, rule, units).await?;
                    if answer.is_admitted() || answer.retry_after().is_some() {
                        return Err(self.breach(format!(
                            "a cost of {units} is above the capacity of {limit}, and not refused for ever"
                        )));
                    }
                }
                let after = self.look(place, rule).await?;
                if after.remaining() < before.remaining() {
                    return Err(self.breach("what never passes has cost something"));
                }
            }
        }
        Ok(())
    }

    pub(in super::super) async fn look_only(&mut self) -> Kept {
        for rule in &self.suite.rules {
            self.begin(rule);
            let alice = self.place("alice");
            for _ in 0..4 {
                self.look(&alice, rule).await?;
                let look = self.look(&alice, rule).await?;
                let left = look.remaining().unwrap_or(0);
                for units in [left.saturating_add(1), left.div_ceil(2).max(1)] {
                    self.acquire(&alice, rule, units).await?;
                }
            }
        }
        Ok(())
    }
}
