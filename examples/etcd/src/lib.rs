//! Rate limits kept in etcd, and the template for a store of one's own: what a store author writes is the
//! `impl CompareAndSwap` in this file. `README.md` walks through it.
//!
//! ```no_run
//! use etcd_client::ConnectOptions;
//! use tollgate::{prelude::*, store::Optimistic};
//! use tollgate_etcd::Etcd;
//!
//! # async fn doc() -> Result<(), tollgate::store::Error> {
//! let etcd = Etcd::connect(&["http://127.0.0.1:2379"], ConnectOptions::new()).await?;
//! let store = Optimistic::<_, TokenBucket>::new(etcd).fail_closed();
//! let layer = RateLimitLayer::new(TokenBucket::per_second(10)).key(PeerIp::new()).store(store);
//! # let _ = layer; Ok(()) }
//! ```

mod failure;
mod leases;

use std::{
    fmt,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::Duration,
};

use etcd_client::{
    Client, Compare, CompareOp, ConnectOptions, GetResponse, PutOptions, Txn, TxnOp, TxnOpResponse,
};
use tokio::time::timeout;
use tollgate::store::{CompareAndSwap, Error, Loaded, Swap, Swapped};

use self::leases::Leases;

/// Limits in an etcd of version 3.
///
/// # Cancellation
///
/// A load or a swap that is dropped may have been sent; a swap that was sent may take place.
pub struct Etcd {
    /// A client for each member of the cluster, of which there is one at least.
    members: Vec<Client>,
    /// Which of them is asked, modulo their number.
    current: AtomicUsize,
    leases: Leases,
    response_timeout: Duration,
}

impl CompareAndSwap for Etcd {
    /// The `mod_revision`: which of the cluster's writes was the last one of this key. No other write ever has the
    /// same, also when the key was removed in between.
    type Version = i64;

    async fn load(&self, key: &[u8]) -> Result<Loaded<i64>, Error> {
        // A linearizable read: it sees what any process was told is written.
        self.ask(async |mut etcd| Ok(loaded(&etcd.get(key, None).await?)))
            .await
    }

    async fn swap(&self, key: &[u8], swap: Swap<'_, i64>) -> Result<Swapped<i64>, Error> {
        self.ask(async |mut etcd| {
            let mut lease = 0;
            let write = match swap.value {
                None => TxnOp::delete(key, None),
                Some(value) => {
                    let grant = async |seconds| {
                        let lease = etcd.lease_grant(seconds, None).await;
                        lease.map(|lease| lease.id())
                    };
                    lease = self.leases.outliving(swap.keep, grant).await?;
                    TxnOp::put(key, value, Some(PutOptions::new().with_lease(lease)))
                }
            };
            // A key that is not there has the `mod_revision` 0, and no other has.
            let expected = swap.expected.copied().unwrap_or(0);
            // One round trip, also for those who lose: they are told to whom.
            let txn = Txn::new()
                .when([Compare::mod_revision(key, CompareOp::Equal, expected)])
                .and_then([write])
                .or_else([TxnOp::get(key, None)]);
            match etcd.txn(txn).await {
                Ok(answer) if answer.succeeded() => {
                    // What a transaction writes has the revision that its answer tells.
                    let revision = answer.header().map(|header| header.revision());
                    Ok(Swapped::Done(revision))
                }
                Ok(answer) => {
                    let mut reads = answer.op_responses().into_iter();
                    Ok(Swapped::Lost(reads.find_map(|read| match read {
                        TxnOpResponse::Get(read) => Some(loaded(&read)),
                        _ => None,
                    })))
                }
                // Somebody revoked the lease, or this process slept too long. Nothing was written: no more than
                // a race that was lost, and the next attempt asks for another lease.
                Err(error) if failure::is_of_the_lease(&error) => {
                    self.leases.forget(lease).await;
                    Ok(Swapped::Lost(None))
                }
                Err(error) => Err(error),
            }
        })
        .await
    }
}

fn loaded(read: &GetResponse) -> Loaded<i64> {
    let there = read.kvs().first();
    Loaded {
        value: there.map(|there| (there.mod_revision(), there.value().to_vec())),
        // etcd tells no time: processes decide by their own clocks.
        now: None,
    }
}

impl Etcd {
    /// A store in the cluster whose members have these URLs, as `http://10.0.0.1:2379`. `options` name a user, TLS, and so on.
    ///
    /// Without a user it comes back at once, and connects when it is first asked.
    ///
    /// # Errors
    ///
    /// When no URL is given, when one is none, or when the user is not let in.
    pub async fn connect(
        endpoints: &[impl AsRef<str>],
        options: ConnectOptions,
    ) -> Result<Self, Error> {
        // A member that vanished without a word is noticed by a ping, of which etcd takes one in five seconds,
        // and only while calls are under way.
        let options = options
            .with_keep_alive(Duration::from_secs(10), Duration::from_secs(1))
            .with_keep_alive_while_idle(false)
            .with_connect_timeout(Duration::from_secs(1));
        let mut members = Vec::new();
        for endpoint in endpoints {
            let client = Client::connect([endpoint], Some(options.clone())).await;
            members.push(client.map_err(failure::store_error)?);
        }
        if members.is_empty() {
            return Err(Error::other(
                "no endpoint: expected the URL of one member of the etcd cluster at least, as http://127.0.0.1:2379",
            ));
        }
        Ok(Self {
            members,
            current: AtomicUsize::new(0),
            leases: Leases::default(),
            response_timeout: Duration::from_millis(250),
        })
    }

    /// How long one load and one swap may each take: 250 ms unless it is set.
    ///
    /// A decision takes one of each, more where others write the same key.
    #[must_use]
    pub fn response_timeout(self, response_timeout: Duration) -> Self {
        Self {
            response_timeout,
            ..self
        }
    }

    /// Asks one member, and from now on the next one where it is not there or silent.
    ///
    /// The call itself is not repeated: it may have been heard, and what becomes of it then is the application's choice.
    async fn ask<T>(
        &self,
        call: impl AsyncFnOnce(Client) -> Result<T, etcd_client::Error>,
    ) -> Result<T, Error> {
        let at = self.current.load(Relaxed);
        let member = self.members[at % self.members.len()].clone();
        let answer = match timeout(self.response_timeout, call(member)).await {
            Ok(answer) => answer.map_err(failure::store_error),
            Err(_) => Err(Error::timeout()),
        };
        if let Err(error) = &answer
            && (error.is_timeout() || error.is_unavailable())
        {
            // Of those who fail at the same member only the first one turns away from it.
            let next = at.wrapping_add(1);
            let _ = self.current.compare_exchange(at, next, Relaxed, Relaxed);
        }
        answer
    }
}

impl fmt::Debug for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Etcd")
            .field("members", &self.members.len())
            .field("response_timeout", &self.response_timeout)
            .finish_non_exhaustive()
    }
}
