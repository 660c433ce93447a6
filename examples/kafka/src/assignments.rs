//! The partitions that brokers assign to an aggregator.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use rdkafka::{
    ClientContext,
    consumer::{BaseConsumer, Consumer, ConsumerContext, Rebalance},
};

/// Counts assignments, so that an aggregator notices also those that take a partition away and give
/// it back.
#[derive(Clone, Debug, Default)]
pub(crate) struct Assignments {
    number: Arc<AtomicU64>,
}

impl Assignments {
    /// Returns a number that each assignment and each revocation increases.
    pub(crate) fn number(&self) -> u64 {
        self.number.load(Ordering::Acquire)
    }
}

impl ClientContext for Assignments {}

impl ConsumerContext for Assignments {
    fn pre_rebalance(&self, _: &BaseConsumer<Self>, _: &Rebalance<'_>) {
        self.number.fetch_add(1, Ordering::AcqRel);
    }
}

/// Returns the partitions that a consumer has now.
pub(crate) fn assigned<C: ConsumerContext>(
    consumer: &impl Consumer<C>,
) -> Result<Vec<i32>, rdkafka::error::KafkaError> {
    let list = consumer.assignment()?;
    Ok(list
        .elements()
        .iter()
        .map(|element| element.partition())
        .collect())
}
