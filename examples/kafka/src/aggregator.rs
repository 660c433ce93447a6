//! Adds the deltas of all nodes up.

use std::{
    collections::{HashMap, HashSet},
    future::Future,
    time::Duration,
};

use rdkafka::{
    Message, Offset, TopicPartitionList,
    consumer::{CommitMode, Consumer, StreamConsumer},
    error::{KafkaError, RDKafkaErrorCode},
    message::BorrowedMessage,
    producer::{FutureProducer, FutureRecord},
};
use tokio::time::{Instant, timeout_at};
use tollgate::time::{Clock, SystemClock};

use crate::{
    Settings,
    message::{Change, HEARTBEAT, Total},
    node::read_to_the_end,
};

/// Changes are taken in together for this time.
const TOGETHER: Duration = Duration::from_millis(10);
const HEARTBEAT_EVERY: Duration = Duration::from_millis(200);
/// A key that is like new is removed from the topic of totals after this time, in which no change is delivered again.
const KEEP: u64 = 3600 * 1_000_000_000;

/// Reads the deltas of all nodes, adds them up by their rules, and writes the totals.
///
/// It begins with the totals that are there, and takes nothing in twice: a change whose number is not above the last one of its node is known. Offsets are committed
/// once the totals are written, so a restart reads the last changes again. Several of them divide the partitions of the topic, and each ends with an error when it is
/// assigned others, so that it is started again with the totals that others have written.
#[derive(Debug)]
pub struct Aggregator {
    settings: Settings,
    clock: SystemClock,
    totals: HashMap<String, Total>,
    /// Changes that could not be read.
    unreadable: u64,
    /// Failures that passed.
    failed: u64,
    /// Keys whose totals are to be written.
    changed: HashSet<String>,
    /// What was read, to be committed afterwards.
    read: TopicPartitionList,
}

impl Aggregator {
    /// Reads the totals that are there.
    ///
    /// # Errors
    ///
    /// When the brokers do not answer.
    pub async fn start(settings: Settings) -> Result<Self, KafkaError> {
        let mut totals = HashMap::new();
        let at_the_end = read_to_the_end(&settings, |key, total| {
            match total {
                Some(total) => totals.insert(key.to_owned(), total),
                None => totals.remove(key),
            };
        });
        drop(at_the_end.await?);
        Ok(Self {
            settings,
            clock: SystemClock::default(),
            totals,
            unreadable: 0,
            failed: 0,
            changed: HashSet::new(),
            read: TopicPartitionList::new(),
        })
    }

    /// Returns how many changes could not be read. They are left out.
    pub fn unreadable(&self) -> u64 {
        self.unreadable
    }

    /// Returns how often the brokers could not be read or written. What was to be written then was written later.
    pub fn failed(&self) -> u64 {
        self.failed
    }

    /// Adds deltas up until the future is ready.
    ///
    /// # Errors
    ///
    /// When the brokers refuse to be read or written for good, or assign other partitions. What was read since the last commit is read again by the next
    /// aggregator. Brokers that are gone for a while are waited for.
    pub async fn run_until(&mut self, end: impl Future<Output = ()>) -> Result<(), KafkaError> {
        let config = self.settings.consumer(&self.settings.topic);
        let consumer: StreamConsumer = config.create()?;
        consumer.subscribe(&[&self.settings.topic])?;
        let producer: FutureProducer = self.settings.producer().create()?;
        let mut end = std::pin::pin!(end);
        let (mut last_heartbeat, mut assigned) = (None, TopicPartitionList::new());
        loop {
            let turn = tokio::select! {
                () = &mut end => return Ok(()),
                turn = self.turn(&consumer, &producer, &mut last_heartbeat) => turn,
            };
            match turn {
                Err(error) if is_fatal(&error) => return Err(error),
                // The clients connect again by themselves.
                Err(_) => {
                    self.failed += 1;
                    tokio::time::sleep(TOGETHER).await;
                }
                Ok(()) => {}
            }
            let now = consumer.assignment()?;
            if assigned.count() > 0 && now.count() > 0 && now != assigned {
                return Err(KafkaError::Rebalance(RDKafkaErrorCode::RebalanceInProgress));
            }
            if now.count() > 0 {
                assigned = now;
            }
        }
    }

    /// Takes in what arrives together, writes the totals, and commits.
    async fn turn(
        &mut self,
        consumer: &StreamConsumer,
        producer: &FutureProducer,
        last_heartbeat: &mut Option<Instant>,
    ) -> Result<(), KafkaError> {
        let until = Instant::now() + TOGETHER;
        while let Ok(message) = timeout_at(until, consumer.recv()).await {
            match message {
                Ok(message) => {
                    let next = Offset::Offset(message.offset() + 1);
                    let place = (message.topic(), message.partition());
                    match self.read.find_partition(place.0, place.1) {
                        Some(mut known) => known.set_offset(next)?,
                        None => self.read.add_partition_offset(place.0, place.1, next)?,
                    }
                    let changed = self.take_in(&message);
                    self.changed.extend(changed);
                }
                Err(KafkaError::PartitionEOF(_)) => {}
                Err(error) => return Err(error),
            }
        }
        let now = self.clock.now().as_nanos();
        let mut writes = Vec::new();
        for key in &self.changed {
            if let Some(total) = self.totals.get_mut(key) {
                total.at = now;
                writes.push((key.clone(), serde_json::to_vec(total).ok()));
            }
        }
        let is_due = last_heartbeat.is_none_or(|last| last.elapsed() >= HEARTBEAT_EVERY);
        if is_due || !writes.is_empty() {
            *last_heartbeat = Some(Instant::now());
            let alive = Total {
                at: now,
                ..Total::default()
            };
            writes.push((HEARTBEAT.to_owned(), serde_json::to_vec(&alive).ok()));
            let old = self
                .totals
                .extract_if(|_, total| total.until.max(total.at) + KEEP < now);
            writes.extend(old.map(|(key, _)| (key, None)));
        }
        let topic = self.settings.totals();
        let written = writes.iter().map(|(key, total)| {
            let record = FutureRecord::<str, [u8]>::to(&topic).key(key);
            let record = match total {
                Some(total) => record.payload(total),
                // Compaction removes the key.
                None => record,
            };
            producer.send(record, self.settings.timeout)
        });
        for written in written.collect::<Vec<_>>() {
            written.await.map_err(|(error, _)| error)?;
        }
        self.changed.clear();
        if self.read.count() > 0 {
            consumer.commit(&self.read, CommitMode::Sync)?;
            self.read = TopicPartitionList::new();
        }
        Ok(())
    }

    /// Returns the key that has changed.
    fn take_in(&mut self, message: &BorrowedMessage<'_>) -> Option<String> {
        let key = message.key().and_then(|key| std::str::from_utf8(key).ok());
        let change = message.payload().map(serde_json::from_slice::<Change>);
        let (Some(key), Some(Ok(change))) = (key, change) else {
            self.unreadable += 1;
            return None;
        };
        let total = self.totals.entry(key.to_owned()).or_default();
        total.take_in(&change).then(|| key.to_owned())
    }
}

/// Returns `true` if an error does not pass.
fn is_fatal(error: &KafkaError) -> bool {
    let code = error.rdkafka_error_code();
    let is_access = |code| {
        matches!(
            code,
            RDKafkaErrorCode::Fatal
                | RDKafkaErrorCode::TopicAuthorizationFailed
                | RDKafkaErrorCode::GroupAuthorizationFailed
                | RDKafkaErrorCode::ClusterAuthorizationFailed
                | RDKafkaErrorCode::UnknownTopicOrPartition
                | RDKafkaErrorCode::UnknownTopic
                | RDKafkaErrorCode::UnknownPartition
        )
    };
    code.is_none_or(is_access)
}
