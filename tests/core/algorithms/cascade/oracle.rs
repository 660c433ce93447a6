//! A list of textbook buckets.

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{ToPrimitive, Zero};
use proptest::prelude::*;
use support::rational::whole;
use tollgate::{Cascade, Charge};

use crate::algorithms::answer::{Answer, rounded};

use super::common::{Bucket, Oracle, bucket};

pub(super) fn cascade(buckets: &[Bucket]) -> Cascade {
    let mut rules = buckets.iter().map(Bucket::rule);
    let first = Cascade::new(rules.next().unwrap());
    rules.fold(first, Cascade::then)
}

/// The filling of each bucket in nanoseconds, and the instant of its last write. Empty for an
/// unknown key.
#[derive(Clone, Default, Debug)]
pub(super) struct Fillings(Vec<(BigRational, u64)>);

/// The tokens in each bucket at an instant at or after the last write.
struct View {
    tokens: Vec<BigRational>,
    at: u64,
    known: bool,
}

impl Fillings {
    fn forgettable(bucket: &Bucket, (filling, written): &(BigRational, u64)) -> BigInt {
        let full = whole(*written) + (bucket.full() - filling).max(BigRational::zero());
        let keep = if bucket.at_rest() { 0 } else { bucket.keep };
        full.ceil().to_integer() + keep
    }

    /// Returns the fillings of these buckets, if the key is known to them.
    fn known(&self, buckets: &[Bucket], now: u64) -> Option<Vec<(BigRational, u64)>> {
        let mut fillings: Vec<_> = self.0.iter().take(buckets.len()).cloned().collect();
        let last = fillings.iter().map(|(_, written)| *written).max()?;
        // An added bucket starts empty.
        fillings.resize(buckets.len(), (BigRational::zero(), last));
        let ends = buckets
            .iter()
            .zip(&fillings)
            .map(|(bucket, filling)| Self::forgettable(bucket, filling));
        let forgotten =
            !buckets.iter().all(Bucket::at_rest) && ends.max().unwrap() <= BigInt::from(now);
        (!forgotten).then_some(fillings)
    }

    fn fresh(buckets: &[Bucket], now: u64) -> Vec<(BigRational, u64)> {
        let initial = |bucket: &Bucket| (whole(bucket.initial) * bucket.interval(), now);
        buckets.iter().map(initial).collect()
    }

    fn view(&self, buckets: &[Bucket], now: u64) -> View {
        let known = self.known(buckets, now);
        let fillings = known.clone().unwrap_or_else(|| Self::fresh(buckets, now));
        let last = fillings.iter().map(|(_, written)| *written).max().unwrap();
        // Time is clamped to the key's last write.
        let at = now.max(last);
        let tokens = buckets
            .iter()
            .zip(fillings)
            .map(|(bucket, (filling, written))| {
                let filling = if filling > bucket.full() {
                    filling.min(bucket.most())
                } else {
                    (filling + whole(at - written)).min(bucket.full())
                };
                filling / bucket.interval()
            });
        View {
            tokens: tokens.collect(),
            at,
            known: known.is_some(),
        }
    }

    fn answer(&self, buckets: &[Bucket], now: u64, class: Option<usize>, asked: u64) -> Answer {
        let View { tokens, at, known } = self.view(buckets, now);
        let both = || buckets.iter().zip(&tokens);
        let until = |bucket: &Bucket, tokens: &BigRational, wanted: u64| {
            let lacking = (whole(wanted) - tokens).max(BigRational::zero());
            whole(at - now) + lacking * bucket.interval()
        };
        let soonest = |wanted: u64| {
            let could = both().filter(|(bucket, _)| bucket.limit() >= wanted);
            could
                .map(|(bucket, tokens)| until(bucket, tokens, wanted + bucket.kept_free))
                .min()
        };
        let held = |(bucket, tokens): (&Bucket, &BigRational)| {
            let tokens = (tokens.floor() - whole(bucket.kept_free)).max(BigRational::zero());
            let tokens = tokens.to_integer().to_u64().unwrap_or(u64::MAX);
            tokens.min(bucket.limit())
        };
        let remaining = both().map(held).max().unwrap();
        let fillings = self.known(buckets, now).unwrap_or_default();
        let rests = both().enumerate().map(|(n, (bucket, tokens))| {
            if bucket.at_rest() && *tokens >= whole(bucket.burst) || !known {
                return BigRational::zero();
            }
            if !bucket.at_rest() {
                // It may have been full for part of that time already.
                let end = Self::forgettable(bucket, &fillings[n]).max(BigInt::from(at));
                return whole(end - now);
            }
            whole(until(bucket, tokens, bucket.burst).ceil().to_integer())
        });
        Answer {
            admitted: class.is_some(),
            class: class.unwrap_or(0) as u8,
            limit: buckets.iter().map(Bucket::limit).max().unwrap(),
            remaining,
            retry: match class {
                Some(_) => Some(BigInt::zero()),
                None => soonest(asked).map(rounded),
            },
            reset: rounded(rests.max().unwrap()),
            more: soonest(remaining + 1).map_or(BigInt::zero(), rounded),
            ..Answer::default()
        }
    }

    fn payer(buckets: &[Bucket], view: &View, cost: u64) -> Option<usize> {
        let mut both = buckets.iter().zip(&view.tokens);
        both.position(|(bucket, tokens)| {
            cost <= bucket.limit() && *tokens >= whole(cost) + whole(bucket.kept_free)
        })
    }
}

impl Oracle<Vec<Bucket>> for Fillings {
    fn step(&mut self, buckets: &Vec<Bucket>, now: u64, cost: u64) -> Answer {
        let view = self.view(buckets, now);
        let class = Self::payer(buckets, &view, cost);
        let begins = !buckets.iter().all(Bucket::at_rest)
            && buckets.iter().any(|bucket| cost <= bucket.limit());
        if class.is_some() || (begins && !view.known) {
            let known = self.known(buckets, now);
            self.0 = known.unwrap_or_else(|| Self::fresh(buckets, now));
        }
        if let Some(class) = class {
            let left = &view.tokens[class] - whole(cost);
            self.0[class] = (left * buckets[class].interval(), view.at);
        }
        self.answer(buckets, now, class, cost)
    }

    fn look(&self, buckets: &Vec<Bucket>, now: u64) -> Answer {
        let class = Self::payer(buckets, &self.view(buckets, now), 1);
        self.answer(buckets, now, class, 1)
    }

    fn settle(&mut self, buckets: &Vec<Bucket>, charge: &Charge, now: u64, actual: u64) {
        let (class, view) = (charge.class as usize, self.view(buckets, now));
        let Some(bucket) = buckets.get(class) else {
            return;
        };
        let back = (whole(charge.cost) - whole(actual)) * bucket.interval();
        if back.is_zero() || (!view.known && back > BigRational::zero()) {
            return;
        }
        let known = self.known(buckets, now);
        let mut known = known.unwrap_or_else(|| Self::fresh(buckets, now));
        let paid = &mut known[class];
        let ended = Self::forgettable(bucket, paid) <= BigInt::from(view.at);
        let untouched = view.known && paid.1 == charge.at.as_nanos() && !ended;
        let filling = &view.tokens[class] * bucket.interval();
        let is_overfull = paid.0 > bucket.full();
        if back < BigRational::zero() {
            let (filling, at) = if untouched {
                (paid.0.clone(), paid.1)
            } else {
                (filling, view.at)
            };
            *paid = (filling + back, at);
        } else if filling >= bucket.full() && !is_overfull {
            return;
        } else if untouched || is_overfull {
            // Under a smaller bucket than the one that charged, the filling is unchanged.
            let corrected = (&paid.0 + back).min(bucket.most());
            if corrected <= paid.0 {
                return;
            }
            paid.0 = corrected;
        } else {
            // The part of the charge that is after the last write, in whole nanoseconds, if the
            // charge began when it was made.
            let least = (whole(charge.cost) * bucket.interval()).floor();
            let ahead = whole(charge.at.as_nanos()) + least - whole(paid.1);
            let back = back.min(ahead);
            if back <= BigRational::zero() {
                return;
            }
            paid.0 = (&paid.0 + back).min(bucket.full()).max(paid.0.clone());
        }
        self.0 = known;
        let paid = &mut self.0[class];
        paid.0 = paid.0.clone().max(bucket.longest_debt());
    }
}

pub(super) fn buckets(whole_intervals: bool) -> impl Strategy<Value = Vec<Bucket>> {
    let count = prop_oneof![4 => 1..=3_usize, 1 => 4..=8_usize];
    count.prop_flat_map(move |count| prop::collection::vec(bucket(whole_intervals), count))
}
