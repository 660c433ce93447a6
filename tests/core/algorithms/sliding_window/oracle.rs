//! The sliding window in the slow obvious way: all calls ever admitted, counted anew for each
//! question, in big rationals.

use std::collections::BTreeMap;

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{ToPrimitive, Zero};
use tollgate::{Quota, SlidingWindow};

use crate::algorithms::answer::Answer;

/// The numbers of a rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Setting {
    pub(super) amount: u64,
    pub(super) window: u64,
    pub(super) slices: u64,
}

impl Setting {
    pub(super) fn rule(&self) -> SlidingWindow {
        let quota = Quota::new(self.amount, std::time::Duration::from_nanos(self.window));
        SlidingWindow::new(quota).slices(self.slices)
    }

    /// Returns the start of slice `k`: the first nanosecond at or after `k` n-ths of the window.
    fn begin(&self, k: &BigInt) -> BigInt {
        let exact = BigRational::new(k * self.window, BigInt::from(self.slices));
        exact.ceil().to_integer()
    }

    fn slice(&self, at: &BigInt) -> BigInt {
        let k = BigRational::new(at * self.slices, BigInt::from(self.window))
            .floor()
            .to_integer();
        assert!(self.begin(&k) <= *at && *at < self.begin(&(&k + 1)));
        k
    }

    fn counts_as(&self, other: &Self) -> bool {
        (self.window, self.slices) == (other.window, other.slices)
    }
}

/// An admitted or forced charge.
#[derive(Clone, Debug)]
struct Call {
    at: BigInt,
    units: BigInt,
}

#[derive(Clone, Debug)]
struct Known {
    calls: Vec<Call>,
    written: BigInt,
    by: Setting,
}

#[derive(Clone, Default, Debug)]
pub(super) struct Oracle {
    known: Option<Known>,
}

impl Known {
    /// Returns the count of each slice, capped at the largest counter.
    fn counters(&self) -> BTreeMap<BigInt, BigInt> {
        let mut counters = BTreeMap::new();
        for call in &self.calls {
            *counters
                .entry(self.by.slice(&call.at))
                .or_insert_with(BigInt::zero) += &call.units;
        }
        for count in counters.values_mut() {
            *count = count.clone().min(BigInt::from(u64::MAX));
        }
        counters
    }

    /// Replaces the calls by one for each counter. Units above the largest counter are lost.
    fn cut(&mut self) {
        let calls = self.counters().into_iter().map(|(slice, units)| Call {
            at: self.by.begin(&slice),
            units,
        });
        self.calls = calls.collect();
    }

    /// Returns the calls under a rule with other slices, each as late as it can have come.
    fn under(&self, rule: &Setting) -> Self {
        if self.by.counts_as(rule) {
            return Self {
                by: *rule,
                ..self.clone()
            };
        }
        let newest = self.by.slice(&self.written);
        let kept = |call: &&Call| self.by.slice(&call.at) >= &newest - self.by.slices;
        let late = |call: &Call| {
            let end: BigInt = self.by.begin(&(self.by.slice(&call.at) + 1)) - 1;
            Call {
                at: end.min(self.written.clone()),
                units: call.units.clone(),
            }
        };
        let calls = self.calls.iter().filter(kept).map(late).collect();
        Self {
            calls,
            written: self.written.clone(),
            by: *rule,
        }
    }
}

/// The units that count at an instant and after it.
struct View {
    rule: Setting,
    at: BigInt,
    now: BigInt,
    counters: BTreeMap<BigInt, BigInt>,
}

impl View {
    fn estimate(&self, at: &BigInt) -> BigRational {
        let k = self.rule.slice(at);
        let first = &k - (self.rule.slices - 1);
        let whole: BigInt = self
            .counters
            .range(first.clone()..=k.clone())
            .map(|(_, count)| count)
            .sum();
        let oldest = self.counters.get(&(first - 1)).cloned().unwrap_or_default();
        let (begin, end) = (self.rule.begin(&k), self.rule.begin(&(k + 1)));
        BigRational::from_integer(whole) + BigRational::new(oldest * (&end - at), end - begin)
    }

    fn passes(&self, at: &BigInt, cost: u64) -> bool {
        self.estimate(at) + BigInt::from(cost) <= BigRational::from_integer(self.rule.amount.into())
    }

    /// Returns the wait until the first instant at which `holds` is true. It stays true from some
    /// instant on, at most two windows from now.
    fn wait(&self, holds: impl Fn(&BigInt) -> bool) -> BigInt {
        let (mut early, mut due) = (
            self.at.clone() - 1,
            &self.at + 2 * BigInt::from(self.rule.window),
        );
        assert!(holds(&due));
        while &due - &early > BigInt::from(1) {
            let middle: BigInt = (&early + &due) >> 1;
            if holds(&middle) {
                due = middle;
            } else {
                early = middle;
            }
        }
        due - &self.now
    }

    fn answer(&self, admitted: bool, cost: u64) -> Answer {
        let estimate = self.estimate(&self.at);
        let left = BigInt::from(self.rule.amount) - estimate.ceil().to_integer();
        let remaining = left.to_u64().unwrap_or(0);
        let zero = BigInt::zero();
        Answer {
            admitted,
            limit: self.rule.amount,
            remaining,
            retry: if admitted {
                Some(zero.clone())
            } else {
                (cost <= self.rule.amount).then(|| self.wait(|at| self.passes(at, cost)))
            },
            reset: if estimate.is_zero() {
                zero.clone()
            } else {
                self.wait(|at| self.estimate(at).is_zero())
            },
            more: if remaining == self.rule.amount {
                zero
            } else {
                self.wait(|at| self.passes(at, remaining + 1))
            },
            ..Answer::default()
        }
    }
}

impl Oracle {
    /// Time is clamped to the last write.
    fn clamped(&self, now: u64) -> BigInt {
        let now = BigInt::from(now);
        self.known
            .as_ref()
            .map_or(now.clone(), |known| known.written.clone().max(now))
    }

    fn view(&self, rule: &Setting, now: u64) -> View {
        View {
            rule: *rule,
            at: self.clamped(now),
            now: BigInt::from(now),
            counters: self
                .known
                .as_ref()
                .map(|known| known.under(rule).counters())
                .unwrap_or_default(),
        }
    }

    pub(super) fn look(&self, rule: &Setting, now: u64) -> Answer {
        let view = self.view(rule, now);
        view.answer(view.passes(&view.at, 1), 1)
    }

    pub(super) fn step(&mut self, rule: &Setting, now: u64, cost: u64) -> Answer {
        let view = self.view(rule, now);
        let admitted = view.passes(&view.at, cost);
        if admitted {
            let mut calls = self
                .known
                .take()
                .map(|known| known.under(rule).calls)
                .unwrap_or_default();
            calls.push(Call {
                at: view.at.clone(),
                units: cost.into(),
            });
            self.known = Some(Known {
                calls,
                written: view.at,
                by: *rule,
            });
        }
        self.view(rule, now).answer(admitted, cost)
    }

    pub(super) fn settle(
        &mut self,
        rule: &Setting,
        charged_at: u64,
        cost: u64,
        now: u64,
        actual: u64,
    ) {
        if actual == cost || (self.known.is_none() && actual < cost) {
            return;
        }
        let at = self.clamped(now);
        let by = self.known.as_ref().map_or(*rule, |known| known.by);
        let (newest, charged) = (by.slice(&at), by.slice(&charged_at.into()));
        if charged > newest || charged < &newest - by.slices {
            return;
        }
        let calls = self
            .known
            .take()
            .map(|known| known.calls)
            .unwrap_or_default();
        let mut known = Known {
            calls,
            written: at,
            by,
        };
        known.cut();
        if actual > cost {
            known.calls.push(Call {
                at: charged_at.into(),
                units: (actual - cost).into(),
            });
        }
        for call in &mut known.calls {
            if actual < cost && by.slice(&call.at) == charged {
                call.units = (&call.units - BigInt::from(cost - actual)).max(BigInt::zero());
            }
        }
        known.cut();
        self.known = Some(known);
    }
}
