//! Adds the deltas of all nodes up.

use std::{
    collections::{BTreeMap, HashMap},
    future::Future,
    time::Duration,
};

use rdkafka::{
    Message, Offset, TopicPartitionList,
    consumer::{CommitMode, Consumer, StreamConsumer},
    error::{KafkaError, RDKafkaErrorCode},
    producer::{FutureProducer, FutureRecord},
};
use tokio::time::{Instant, timeout_at};
use tollgate::time::{Clock, SystemClock};

use crate::{
    AggregatorCounters, Error, Settings,
    assignments::{Assignments, assigned},
    partition::Partition,
    reading::{check_ends, partitions, read_to_the_end},
    total::{HEARTBEAT, Total},
};

type Deltas = StreamConsumer<Assignments>;

/// Changes are taken in together for this time.
const TOGETHER: Duration = Duration::from_millis(10);

/// Reads the deltas of all nodes, adds them up by their rules, and writes the totals.
///
/// Several of them divide the partitions of the topic. When a partition is assigned, the aggregator
/// reads the totals that are there, and goes on behind the last commit. It takes nothing in twice:
/// a total contains the offset of its last change. Offsets are committed once the totals are
/// written, so the next aggregator reads the last changes again.
#[derive(Debug)]
pub struct Aggregator {
    settings: Settings,
    clock: SystemClock,
    /// Those that are assigned, and whose totals were read since.
    partitions: BTreeMap<i32, Partition>,
    assignment: u64,
    counters: AggregatorCounters,
}

impl Aggregator {
    /// Checks the topics.
    ///
    /// # Errors
    ///
    /// When the brokers do not answer, or the topics have different numbers of partitions.
    pub async fn start(settings: Settings) -> Result<Self, Error> {
        partitions(&settings).await?;
        Ok(Self {
            settings,
            clock: SystemClock::default(),
            partitions: BTreeMap::new(),
            assignment: 0,
            counters: AggregatorCounters::default(),
        })
    }

    /// Returns the counters, also for use while the aggregator runs.
    pub fn counters(&self) -> AggregatorCounters {
        self.counters.clone()
    }

    /// Adds deltas up until the future is ready.
    ///
    /// # Errors
    ///
    /// When the brokers refuse to be read or written for good, or the totals are ahead of the
    /// deltas. What was read since the last commit is read again by the next aggregator. Brokers
    /// that are gone for a while are waited for.
    pub async fn run_until(&mut self, end: impl Future<Output = ()>) -> Result<(), Error> {
        let assignments = Assignments::default();
        let config = self.settings.consumer(&self.settings.topic);
        let consumer: Deltas = config.create_with_context(assignments.clone())?;
        consumer.subscribe(&[&self.settings.topic])?;
        let producer: FutureProducer = self.settings.producer().create()?;
        let mut end = std::pin::pin!(end);
        let ended = loop {
            let turn = tokio::select! {
                () = &mut end => break Ok(()),
                turn = self.turn((&consumer, &assignments), &producer) => turn,
            };
            match turn {
                Err(error) if is_fatal(&error) => break Err(error),
                // The clients connect again by themselves.
                Err(_) => {
                    self.counters.inner.failed.add(1);
                    tokio::time::sleep(TOGETHER).await;
                }
                Ok(()) => {}
            }
        };
        self.drop_partitions();
        ended
    }

    /// Takes in what arrives together, writes the totals, and commits.
    async fn turn(
        &mut self,
        (consumer, assignments): (&Deltas, &Assignments),
        producer: &FutureProducer,
    ) -> Result<(), Error> {
        let until = Instant::now() + TOGETHER;
        while let Ok(message) = timeout_at(until, consumer.recv()).await {
            // Another aggregator may have had a partition meanwhile.
            if self.assignment != assignments.number() {
                self.drop_partitions();
                self.assignment = assignments.number();
            }
            match message {
                Ok(message) => {
                    self.load_patiently(consumer).await?;
                    let now = self.clock.now().as_nanos();
                    if let Some(partition) = self.partitions.get_mut(&message.partition()) {
                        partition.take_in(&message, now, &self.counters.inner);
                    }
                }
                Err(KafkaError::PartitionEOF(partition)) => {
                    self.load_patiently(consumer).await?;
                    if let Some(partition) = self.partitions.get_mut(&partition) {
                        partition.reach_the_end();
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        if self.assignment != assignments.number() {
            self.drop_partitions();
            self.assignment = assignments.number();
        }
        self.load(consumer).await?;
        self.write(producer).await?;
        self.commit(consumer)?;
        Ok(())
    }

    fn drop_partitions(&mut self) {
        self.partitions.clear();
        self.counters.inner.partitions.set(0);
    }

    /// Reads the totals of what is assigned, until that succeeds: something was read that must not
    /// be left out.
    async fn load_patiently(&mut self, consumer: &Deltas) -> Result<(), Error> {
        loop {
            match self.load(consumer).await {
                Err(error) if !is_fatal(&error) => {
                    self.counters.inner.failed.add(1);
                    tokio::time::sleep(TOGETHER).await;
                }
                done => return done,
            }
        }
    }

    /// Reads the totals of the partitions that are assigned, unless they are here.
    async fn load(&mut self, consumer: &Deltas) -> Result<(), Error> {
        let assigned = assigned(consumer)?.into_iter();
        let is_new = |partition: &i32| !self.partitions.contains_key(partition);
        let mut new: BTreeMap<i32, HashMap<String, Total>> = assigned
            .filter(is_new)
            .map(|partition| (partition, HashMap::new()))
            .collect();
        if new.is_empty() {
            return Ok(());
        }
        let list: Vec<_> = new.keys().copied().collect();
        let (now, counts) = (self.clock.now().as_nanos(), &self.counters.inner);
        let read = read_to_the_end(&self.settings, list.into_iter(), |partition, key, total| {
            let totals = new.entry(partition).or_default();
            match total {
                _ if key == HEARTBEAT => {}
                // Of an aggregator that wrote after it had lost the partition.
                Ok(Some(total)) if totals.get(key).is_some_and(|known| known.next > total.next) => {
                }
                Ok(None) if totals.get(key).is_some_and(|known| !known.is_like_new(now)) => {}
                Ok(Some(total)) => drop(totals.insert(key.to_owned(), total)),
                Ok(None) => drop(totals.remove(key)),
                Err(_) => counts.unreadable.add(1),
            }
        });
        drop(read.await?);
        let next = |totals: &HashMap<_, Total>| totals.values().map(|total| total.next).max();
        let with_totals = new
            .iter()
            .filter_map(|(partition, totals)| Some((*partition, next(totals)?)));
        check_ends(&self.settings, with_totals.collect()).await?;
        for (partition, totals) in new {
            self.partitions.insert(partition, Partition::new(totals));
        }
        let count = self.partitions.len() as u64;
        self.counters.inner.partitions.set(count);
        Ok(())
    }

    async fn write(&mut self, producer: &FutureProducer) -> Result<(), Error> {
        let (now, keep) = (self.clock.now().as_nanos(), self.settings.keep_nanos());
        let (topic, counts) = (self.settings.totals(), &self.counters.inner);
        for (number, partition) in &mut self.partitions {
            let writes = partition.writes(now, keep, counts);
            let written = writes.iter().map(|(key, total)| {
                let record = FutureRecord::<str, [u8]>::to(&topic)
                    .partition(*number)
                    .key(key);
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
            partition.written(&writes, counts);
        }
        Ok(())
    }

    /// Commits what was read, without waiting: what is read again is known.
    fn commit(&mut self, consumer: &Deltas) -> Result<(), KafkaError> {
        let mut list = TopicPartitionList::new();
        for (number, partition) in &mut self.partitions {
            if let Some(next) = partition.next.take() {
                let next = Offset::Offset(next);
                list.add_partition_offset(&self.settings.topic, *number, next)?;
            }
        }
        match list.count() {
            0 => Ok(()),
            _ => consumer.commit(&list, CommitMode::Async),
        }
    }
}

/// Returns `true` if an error does not pass.
fn is_fatal(error: &Error) -> bool {
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
    match error {
        Error::Kafka(error) => error.rdkafka_error_code().is_none_or(is_access),
        Error::Topics(_) => true,
    }
}
