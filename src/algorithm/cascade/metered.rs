//! Cascades of common buckets, counted in words of 64 bits.
//!
//! Decides as `step.rs` does, in a fraction of its time.

use std::time::Duration;

use super::{Cascade, CascadeState, MOST};
use crate::{
    algorithm::{
        Step,
        mark::Mark,
        token_bucket::{BucketLevel, BucketMeter, TokenBucket},
    },
    clock::Timestamp,
    decision::{Cost, Decision, Told, Verdict},
};

/// A bucket of the rule, and what it holds in thirds of a nanosecond.
type Held<'a> = (&'a BucketMeter, i64);

/// The wait until some bucket can pay `cost`, which none can now; `None` is never.
#[inline]
fn soonest(held: &[Held<'_>], cost: u64) -> Option<Duration> {
    let waits = held
        .iter()
        .filter_map(|(meter, level)| meter.until(*level, cost));
    waits.min().map(Duration::from_nanos)
}

impl Cascade {
    /// A step, if rule and state can be counted in words.
    #[inline]
    pub(super) fn step_metered(
        &self,
        state: &mut Option<CascadeState>,
        now: Timestamp,
        cost: Cost,
    ) -> Option<Step> {
        if !self.is_metered {
            return None;
        }
        let places = state.as_mut()?.as_mut_slice();
        let none = (self.buckets.first()?.in_words()?, 0);
        // Of two, as most have, the compiler makes no loops.
        match (&*self.buckets, places) {
            (buckets @ [_, _], places @ [_, _]) => {
                self.step_of(buckets, places, &mut [none; 2], now, cost)
            }
            (buckets, places) if buckets.len() == places.len() => {
                let held = &mut [none; MOST];
                self.step_of(buckets, places, held.get_mut(..buckets.len())?, now, cost)
            }
            _ => None,
        }
    }

    /// The step for these buckets, and as many places; what they hold is written to `held`.
    #[inline(always)]
    fn step_of<'a>(
        &self,
        buckets: &'a [TokenBucket],
        places: &mut [BucketLevel],
        held: &mut [Held<'a>],
        now: Timestamp,
        cost: Cost,
    ) -> Option<Step> {
        let mut paid = None;
        for (n, held) in held.iter_mut().enumerate() {
            let (meter, mut level) = buckets[n].metered(&places[n], now)?;
            if paid.is_none()
                && let Some(left) = meter.pay(level, cost.get())
            {
                (paid, level) = (Some((n, left)), left);
            }
            *held = (meter, level);
        }
        let (mut remaining, mut lacking) = (0, 0);
        // Later buckets are mostly fuller, and what they hold saves a division for those before.
        for (meter, level) in held.iter().rev() {
            lacking = lacking.max(meter.full() - level);
            if meter.pay(*level, remaining + 1).is_some() {
                remaining = meter.tokens(*level);
            }
        }
        let verdict = match paid {
            Some((class, left)) => {
                places[class] = BucketLevel::of_thirds(left, now);
                Verdict::Allow
            }
            None => Verdict::Refuse,
        };
        let decision = Decision::new(verdict, now, cost.get())
            .with_limit(self.capacity, self.quota)
            .with_told(Told {
                remaining,
                more_after: soonest(held, remaining + 1).unwrap_or_default(),
                reset_after: Duration::from_nanos((lacking as u64).div_ceil(Mark::PER_NANO)),
            });
        Some(match paid {
            Some((class, _)) => Step::Wrote(decision.with_class(class as u8)),
            None => Step::Kept(decision.with_retry_after(soonest(held, cost.get()))),
        })
    }
}
