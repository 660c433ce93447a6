//! An exact meter over what calls really cost, in rational numbers.

use num_rational::BigRational;
use num_traits::Zero;
use tollgate::{Decision, TokenBucket};

use support::rational::{rate, whole};

/// A call that was admitted.
pub(crate) struct Call {
    /// Nanoseconds on the timeline of the store.
    at: u64,
    /// The buckets that it was charged to.
    buckets: Vec<usize>,
    charged: u64,
    actual: u64,
    /// How many calls had been admitted when its actual cost was known.
    known: usize,
}

/// All calls of one key, and the buckets that its rule consists of.
pub(crate) struct Meter {
    buckets: Vec<TokenBucket>,
    calls: Vec<Call>,
}

impl Meter {
    pub(crate) fn new(buckets: &[TokenBucket]) -> Self {
        Self {
            buckets: buckets.to_vec(),
            calls: Vec::new(),
        }
    }

    /// Notes an admission; returns its number.
    pub(crate) fn admit(&mut self, decision: &Decision, buckets: Vec<usize>, cost: u64) -> usize {
        self.calls.push(Call {
            at: decision.at().as_nanos(),
            buckets,
            charged: cost,
            actual: cost,
            known: 0,
        });
        self.calls.len() - 1
    }

    /// Notes what a call really cost.
    pub(crate) fn settle(&mut self, call: usize, actual: u64) {
        let known = self.calls.len();
        self.calls[call].actual = actual;
        self.calls[call].known = known;
    }

    /// The admissions that this meter refuses, with the units that each lacks.
    ///
    /// Its bucket is full again at its theoretical arrival time; a call passes that moves it no further than the bucket takes
    /// to fill. What calls before it cost less counts, whenever that was known; what they cost more, if it was.
    pub(crate) fn refused(&self) -> Vec<String> {
        let mut refused = Vec::new();
        for (n, bucket) in self.buckets.iter().enumerate() {
            let (quota, burst) = (bucket.quota(), bucket.capacity());
            let interval = rate(quota.amount(), quota.period_nanos(), burst).interval;
            let burst = whole(bucket.capacity()) * &interval;
            let calls = self.calls.iter().enumerate();
            let calls: Vec<_> = calls
                .filter(|(_, call)| call.buckets.contains(&n))
                .collect();
            for (place, (number, call)) in calls.iter().enumerate() {
                let mut arrival = BigRational::zero();
                for (_, before) in &calls[..place] {
                    let cost = if before.known <= *number {
                        before.actual
                    } else {
                        before.actual.min(before.charged)
                    };
                    arrival = arrival.max(whole(before.at)) + whole(cost) * &interval;
                }
                arrival = arrival.max(whole(call.at)) + whole(call.charged) * &interval;
                let over = arrival - whole(call.at) - &burst;
                if over > BigRational::zero() {
                    let (at, units) = (call.at, over / &interval);
                    refused.push(format!(
                        "call {number} at {at} exceeds bucket {n} by {units}"
                    ));
                }
            }
        }
        refused
    }
}
