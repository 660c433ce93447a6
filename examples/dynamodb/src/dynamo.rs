//! The store: a table, and the client that asks for it.

use std::{fmt, sync::Arc, time::Duration};

use aws_sdk_dynamodb::{
    Client, Config,
    config::{BehaviorVersion, Region, retry::RetryConfig, timeout::TimeoutConfig},
};
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};

use crate::{Capacity, Place, capacity::Consumed};

/// Limits in a table of DynamoDB. Clones share the client.
///
/// [`CasStore`](tollgate::store::driver::CasStore) makes a store for every rule of it, and
/// [`CounterStore`](tollgate::store::driver::CounterStore) one for windows.
///
/// # Cancellation
///
/// A dropped call may have been sent. A write that was sent may take effect.
#[derive(Clone)]
pub struct Dynamo {
    pub(crate) client: Client,
    pub(crate) table: Arc<str>,
    pub(crate) consumed: Arc<Consumed>,
}

impl Dynamo {
    /// Creates a store in a table. Connects at the first call.
    ///
    /// Each call has a deadline of 250 ms, or what [`response_timeout`](Self::response_timeout)
    /// sets.
    pub fn connect(place: Place, table: &str) -> Self {
        let http = aws_smithy_http_client::Builder::new();
        let mut config = Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .http_client(
                http.tls_provider(Provider::Rustls(CryptoMode::Ring))
                    .build_https(),
            )
            .region(Region::new(place.region))
            .credentials_provider(place.credentials);
        if let Some(endpoint) = place.endpoint {
            config = config.endpoint_url(endpoint);
        }
        Self::new(&Client::from_conf(config.build()), table)
            .response_timeout(Duration::from_millis(250))
    }

    /// Creates a store in a table, with a client of your own.
    ///
    /// The client's repetitions are switched off. A repeated write would count twice if only the
    /// answer to the first one was lost, or it would look like a lost race although it took effect.
    pub fn new(client: &Client, table: &str) -> Self {
        let once = client
            .config()
            .to_builder()
            .retry_config(RetryConfig::disabled());
        Self {
            client: Client::from_conf(once.build()),
            table: table.into(),
            consumed: Arc::default(),
        }
    }

    /// Sets the deadline of each call.
    ///
    /// A decision takes one read and one write, and more of them if other processes write the same
    /// key.
    #[must_use]
    pub fn response_timeout(self, response_timeout: Duration) -> Self {
        let timeouts = TimeoutConfig::builder()
            .operation_timeout(response_timeout)
            .build();
        let config = self.client.config().to_builder().timeout_config(timeouts);
        Self {
            client: Client::from_conf(config.build()),
            ..self
        }
    }

    /// Returns what the calls of this store and its clones have consumed.
    pub fn capacity(&self) -> Capacity {
        self.consumed.get()
    }
}

impl fmt::Debug for Dynamo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dynamo")
            .field("table", &self.table)
            .finish_non_exhaustive()
    }
}
