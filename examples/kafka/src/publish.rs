//! The counters as metrics.

use metrics::{counter, gauge};
use tollgate::observe::Publish;

use crate::{AggregatorCounters, Kafka};

/// | metric | labels | |
/// |---|---|---|
/// | `tollgate_kafka_staleness_nanoseconds` | `store`, `partition` | age of the totals; infinite if no aggregator was ever there |
/// | `tollgate_kafka_unsynced_changes` | `store` | changes of this node that are not in the totals yet |
/// | `tollgate_kafka_keys` | `store` | keys with totals |
/// | `tollgate_kafka_given_up_total` | `store` | changes that the node's own view lacked for a while |
/// | `tollgate_kafka_outdated_total` | `store` | totals that were left out, because newer ones were known |
/// | `tollgate_kafka_unreadable_total` | `store` | totals that were left out, because they could not be read |
/// | `tollgate_kafka_failed_total` | `store` | failures of reading |
impl Publish for Kafka {
    fn publish(&self, name: &str) {
        let store = || name.to_owned();
        for (partition, age) in self.staleness_by_partition().into_iter().enumerate() {
            let age = age.map_or(f64::INFINITY, |age| age.as_nanos() as f64);
            let partition = partition.to_string();
            gauge!("tollgate_kafka_staleness_nanoseconds", "store" => store(), "partition" => partition).set(age);
        }
        gauge!("tollgate_kafka_unsynced_changes", "store" => store()).set(self.unsynced() as f64);
        gauge!("tollgate_kafka_keys", "store" => store()).set(self.keys() as f64);
        for (metric, value) in [
            ("tollgate_kafka_given_up_total", self.given_up()),
            ("tollgate_kafka_outdated_total", self.outdated()),
            ("tollgate_kafka_unreadable_total", self.unreadable()),
            ("tollgate_kafka_failed_total", self.failed()),
        ] {
            counter!(metric, "store" => store()).absolute(value);
        }
    }
}

/// `tollgate_kafka_aggregator_…`, with the label `store`: the gauge `partitions`, and a counter for
/// each of the others.
impl Publish for AggregatorCounters {
    fn publish(&self, name: &str) {
        let store = || name.to_owned();
        let partitions = self.partitions() as f64;
        gauge!("tollgate_kafka_aggregator_partitions", "store" => store()).set(partitions);
        for (metric, value) in [
            ("tollgate_kafka_aggregator_taken_in_total", self.taken_in()),
            (
                "tollgate_kafka_aggregator_unreadable_total",
                self.unreadable(),
            ),
            ("tollgate_kafka_aggregator_repeated_total", self.repeated()),
            (
                "tollgate_kafka_aggregator_redelivered_total",
                self.redelivered(),
            ),
            (
                "tollgate_kafka_aggregator_forgotten_nodes_total",
                self.forgotten_nodes(),
            ),
            ("tollgate_kafka_aggregator_removed_total", self.removed()),
            ("tollgate_kafka_aggregator_failed_total", self.failed()),
        ] {
            counter!(metric, "store" => store()).absolute(value);
        }
    }
}
