//! Reasons why a node or an aggregator cannot go on.

use std::fmt;

use rdkafka::error::KafkaError;

/// The reason why a node or an aggregator cannot go on.
#[derive(Debug)]
pub enum Error {
    /// The brokers refuse something, or do not answer.
    Kafka(KafkaError),
    /// The topics do not fit each other: a sentence that says what to do.
    Topics(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kafka(error) => error.fmt(f),
            Self::Topics(sentence) => f.write_str(sentence),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Kafka(error) => Some(error),
            Self::Topics(_) => None,
        }
    }
}

impl From<KafkaError> for Error {
    fn from(error: KafkaError) -> Self {
        Self::Kafka(error)
    }
}
