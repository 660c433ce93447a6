//! The capacity units that DynamoDB charges for.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use aws_sdk_dynamodb::types::ConsumedCapacity;

/// The capacity units that the calls of a store and its clones have consumed, as DynamoDB reports
/// them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Capacity {
    /// A consistent read of up to 4 KB is one unit.
    pub read: f64,
    /// A write of up to 1 KB is one unit, also if its condition does not hold.
    pub write: f64,
}

/// Sums of capacity, in halves of a unit: DynamoDB charges no less.
#[derive(Debug, Default)]
pub(crate) struct Consumed {
    read: AtomicU64,
    write: AtomicU64,
}

impl Consumed {
    pub(crate) fn read(&self, of: &[ConsumedCapacity]) {
        self.read.fetch_add(halves(of), Relaxed);
    }

    pub(crate) fn write(&self, of: &[ConsumedCapacity]) {
        self.write.fetch_add(halves(of), Relaxed);
    }

    /// Counts a write whose condition did not hold. DynamoDB charges for it, but its error does not
    /// say how much: one unit, up to 1 KB.
    pub(crate) fn failed_write(&self) {
        self.write.fetch_add(2, Relaxed);
    }

    pub(crate) fn get(&self) -> Capacity {
        let units = |sum: &AtomicU64| sum.load(Relaxed) as f64 / 2.0;
        Capacity {
            read: units(&self.read),
            write: units(&self.write),
        }
    }
}

fn halves(of: &[ConsumedCapacity]) -> u64 {
    let units: f64 = of.iter().filter_map(ConsumedCapacity::capacity_units).sum();
    (2.0 * units).round() as u64
}
