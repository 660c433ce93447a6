//! An exact meter over the actual costs of calls, in rational numbers.

use num_rational::BigRational;
use num_traits::Zero;
use tollgate::{Decision, TokenBucket};

use support::rational::{interval, whole};

/// An admitted call.
pub(crate) struct Call {
    /// The admission, in nanoseconds on the timeline of the store.
    at: u64,
    /// The buckets that were charged.
    buckets: Vec<usize>,
    charged: u64,
    actual: u64,
    /// The number of calls admitted before its actual cost was known.
    known: usize,
}

/// All calls of one key, and the buckets of its rule.
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

    /// Records an admission, and returns its number.
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

    /// Records the actual cost of a call.
    pub(crate) fn settle(&mut self, call: usize, actual: u64) {
        let known = self.calls.len();
        self.calls[call].actual = actual;
        self.calls[call].known = known;
    }

    /// Returns the admissions that this meter refuses, with the units missing for each.
    ///
    /// A bucket is full again at its theoretical arrival time. A call passes if it moves that time
    /// no further ahead than the bucket takes to fill. A lower actual cost of an earlier call
    /// always counts. A higher one counts only if it was known by then.
    pub(crate) fn refused(&self) -> Vec<String> {
        let mut refused = Vec::new();
        for (n, bucket) in self.buckets.iter().enumerate() {
            let (quota, burst) = (bucket.quota(), bucket.capacity());
            let interval = interval(quota.amount(), quota.period_nanos(), burst);
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
