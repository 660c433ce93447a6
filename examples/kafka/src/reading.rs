//! Reads the topics.

use std::{future::Future, time::Duration};

use rdkafka::{
    Message, Offset, TopicPartitionList,
    consumer::{Consumer, StreamConsumer},
    error::{KafkaError, RDKafkaErrorCode},
};

use crate::{Error, Settings, total::Total};

/// Runs a call that waits, outside of the runtime.
async fn blocking<T: Send + 'static>(
    call: impl FnOnce() -> Result<T, KafkaError> + Send + 'static,
) -> Result<T, KafkaError> {
    let done = tokio::task::spawn_blocking(call).await;
    done.map_err(|_| KafkaError::Canceled)?
}

/// Returns the number of partitions of both topics.
pub(crate) async fn partitions(settings: &Settings) -> Result<i32, Error> {
    let (deltas, totals) = (settings.topic.clone(), settings.totals());
    let (consumer, timeout) = (settings.consumer(&totals).create()?, settings.timeout * 5);
    let topics = [deltas.clone(), totals.clone()];
    let counts = blocking(move || count(&consumer, &topics, timeout)).await?;
    match counts[..] {
        [a, b] if a == b && a > 0 => Ok(a),
        [a, b] => Err(Error::Topics(format!(
            "the topic `{deltas}` has {a} partitions and `{totals}` has {b}: expected as many of both, because a total is in the partition of its deltas; \
             create both with one number, and never change it"
        ))),
        _ => Err(KafkaError::MetadataFetch(RDKafkaErrorCode::UnknownTopicOrPartition).into()),
    }
}

fn count(
    consumer: &StreamConsumer,
    topics: &[String],
    timeout: Duration,
) -> Result<Vec<i32>, KafkaError> {
    let count = |topic: &String| {
        let metadata = consumer.fetch_metadata(Some(topic), timeout)?;
        let partitions = metadata
            .topics()
            .iter()
            .map(|topic| topic.partitions().len());
        Ok(i32::try_from(partitions.sum::<usize>()).unwrap_or(i32::MAX))
    };
    topics.iter().map(count).collect()
}

/// Checks that the deltas of partitions go on behind those that are in the totals.
pub(crate) async fn check_ends(settings: &Settings, next: Vec<(i32, i64)>) -> Result<(), Error> {
    if next.is_empty() {
        return Ok(());
    }
    let (topic, totals, timeout) = (
        settings.topic.clone(),
        settings.totals(),
        settings.timeout * 5,
    );
    let consumer: StreamConsumer = settings.consumer(&totals).create()?;
    let ends = blocking({
        let topic = topic.clone();
        move || {
            let end = |(partition, next)| {
                let (_, end) = consumer.fetch_watermarks(&topic, partition, timeout)?;
                Ok((partition, next, end))
            };
            next.into_iter().map(end).collect::<Result<Vec<_>, _>>()
        }
    });
    match ends.await?.into_iter().find(|(_, next, end)| next > end) {
        None => Ok(()),
        Some((partition, next, end)) => Err(Error::Topics(format!(
            "partition {partition} of `{totals}` has totals of changes up to offset {next}, and `{topic}` ends at {end}: expected the topic of which they are; if \
             that was created anew, create `{totals}` anew, too, and start the nodes again"
        ))),
    }
}

/// Reads these partitions of the topic of totals from their beginnings to what are their ends now.
pub(crate) fn read_to_the_end<'a>(
    settings: &Settings,
    partitions: impl Iterator<Item = i32>,
    mut read: impl FnMut(i32, &str, Read) + Send + 'a,
) -> impl Future<Output = Result<StreamConsumer, KafkaError>> + Send + 'a {
    let topic = settings.totals();
    let mut list = TopicPartitionList::new();
    let offsets =
        partitions.map(|partition| list.add_partition_offset(&topic, partition, Offset::Beginning));
    let offsets: Result<Vec<()>, _> = offsets.collect();
    // A group of its own, which commits nothing: every node reads all.
    let consumer = settings.consumer(&topic).create::<StreamConsumer>();
    async move {
        offsets?;
        let consumer = consumer?;
        let mut left = list.count();
        consumer.assign(&list)?;
        while left > 0 {
            match consumer.recv().await {
                Ok(message) => {
                    let key = message.key().and_then(|key| std::str::from_utf8(key).ok());
                    if let Some(key) = key {
                        read(message.partition(), key, total(message.payload()));
                    }
                }
                Err(KafkaError::PartitionEOF(_)) => left -= 1,
                Err(error) => return Err(error),
            }
        }
        Ok(consumer)
    }
}

/// A message of the topic of totals: a total, `None` if its key was removed, or an error if the
/// message cannot be read.
pub(crate) type Read = Result<Option<Total>, serde_json::Error>;

pub(crate) fn total(payload: Option<&[u8]>) -> Read {
    payload.map(serde_json::from_slice).transpose()
}
