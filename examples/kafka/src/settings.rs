//! Where the topics are.

use std::time::Duration;

use rdkafka::{
    ClientConfig,
    admin::{AdminClient, AdminOptions, NewTopic, TopicReplication},
    client::DefaultClientContext,
    error::{KafkaError, RDKafkaErrorCode},
};

use crate::Error;

/// The brokers and the names of the topics.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `host:port`, with commas between several.
    pub brokers: String,
    /// The topic of deltas; that of totals has `.totals` behind it. The group of the aggregators
    /// has this name, too.
    pub topic: String,
    /// The deadline for writing a message.
    pub timeout: Duration,
    /// Brokers give the partitions of an aggregator that is silent for so long to others. Brokers
    /// accept 6 s or more, unless they are set up otherwise.
    pub session: Duration,
    /// The totals of a key stay in the topic for so long after it is like new. A change that its
    /// node repeats later than that counts twice.
    pub keep: Duration,
}

impl Settings {
    /// Settings with a timeout of a second, sessions of 6 s, and totals that are kept for an hour.
    pub fn new(brokers: &str, topic: &str) -> Self {
        Self {
            brokers: brokers.to_owned(),
            topic: topic.to_owned(),
            timeout: Duration::from_secs(1),
            session: Duration::from_secs(6),
            keep: Duration::from_secs(3600),
        }
    }

    pub(crate) fn keep_nanos(&self) -> u64 {
        u64::try_from(self.keep.as_nanos()).unwrap_or(u64::MAX)
    }

    pub(crate) fn totals(&self) -> String {
        format!("{}.totals", self.topic)
    }

    fn client(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.brokers);
        config
    }

    /// Each message is written once and in order, as long as the producer lives.
    pub(crate) fn producer(&self) -> ClientConfig {
        let timeout = self.timeout.as_millis().to_string();
        let mut config = self.client();
        config
            .set("enable.idempotence", "true")
            .set("acks", "all")
            .set("linger.ms", "2")
            .set("message.timeout.ms", &timeout)
            .set("request.timeout.ms", &timeout);
        config
    }

    pub(crate) fn consumer(&self, group: &str) -> ClientConfig {
        let session = self.session.as_millis();
        let mut config = self.client();
        config
            .set("group.id", group)
            .set("enable.auto.commit", "false")
            .set("auto.offset.reset", "earliest")
            .set("enable.partition.eof", "true")
            .set("session.timeout.ms", session.to_string())
            .set("heartbeat.interval.ms", (session / 3).to_string())
            .set("fetch.wait.max.ms", "20");
        config
    }

    /// Creates the topics, unless they are there: that of totals compacted. Their number of
    /// partitions must never change.
    ///
    /// # Errors
    ///
    /// When the brokers refuse it, or do not answer.
    pub async fn create_topics(&self, partitions: i32, copies: i32) -> Result<(), Error> {
        if crate::reading::partitions(self).await.is_ok() {
            return Ok(());
        }
        let admin: AdminClient<DefaultClientContext> = self.client().create()?;
        let totals = self.totals();
        let topic = |name| NewTopic::new(name, partitions, TopicReplication::Fixed(copies));
        let topics = [
            topic(&self.topic),
            topic(&totals).set("cleanup.policy", "compact"),
        ];
        for created in admin.create_topics(&topics, &AdminOptions::new()).await? {
            match created {
                Ok(_) | Err((_, RDKafkaErrorCode::TopicAlreadyExists)) => {}
                Err((_, code)) => return Err(KafkaError::AdminOp(code).into()),
            }
        }
        Ok(())
    }
}
