//! Rate limits in etcd, and a template for your own store.
//!
//! The part that a store author writes is the `impl CompareAndSwap` in this file. `README.md`
//! explains it step by step.
//!
//! ```no_run
//! use etcd_client::ConnectOptions;
//! use tollgate::{prelude::*, store::driver::CasStore};
//! use tollgate_etcd::Etcd;
//!
//! # async fn doc() -> Result<(), tollgate::store::StoreError> {
//! let etcd = Etcd::connect(&["http://127.0.0.1:2379"], ConnectOptions::new()).await?;
//! let store = CasStore::<_, TokenBucket>::new(etcd).fail_closed();
//! let layer = RateLimitLayer::new(TokenBucket::per_second(10)).key(PeerIp::new()).store(store);
//! # let _ = layer; Ok(()) }
//! ```
#![warn(missing_docs, missing_debug_implementations)]

mod failure;
mod leases;

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use etcd_client::{
    Client, Compare, CompareOp, ConnectOptions, GetResponse, PutOptions, Txn, TxnOp, TxnOpResponse,
};
use tokio::{sync::OnceCell, time::timeout};
use tollgate::store::{
    StoreError,
    driver::{CompareAndSwap, Loaded, Swap, Swapped},
};

use self::leases::Leases;

/// The longest time for a connection to a member.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// The longest time for which a member is waited for at the start. It takes its time to check a
/// password.
const SIGN_IN_TIMEOUT: Duration = Duration::from_secs(5);

/// Limits in an etcd of version 3.
///
/// # Cancellation
///
/// A dropped load or swap may have been sent. A swap that was sent may take effect.
pub struct Etcd {
    /// The members of the cluster; at least one.
    members: Vec<Member>,
    /// The index of the member in use, modulo the number of members.
    current: AtomicUsize,
    leases: Leases,
    response_timeout: Duration,
}

/// A member of the cluster.
struct Member {
    endpoint: String,
    options: ConnectOptions,
    current: Mutex<Arc<OnceCell<Client>>>,
}

impl Member {
    fn current(&self) -> MutexGuard<'_, Arc<OnceCell<Client>>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the client in `cell`. With a user, it exists only once the member has accepted that
    /// user.
    async fn client(&self, cell: &OnceCell<Client>) -> Result<Client, etcd_client::Error> {
        let connect = || Client::connect([&self.endpoint], Some(self.options.clone()));
        cell.get_or_try_init(connect).await.cloned()
    }

    /// Has the next call make another client, unless one has been made since. A client works only
    /// as long as the runtime in which it was made.
    fn give_up(&self, cell: &Arc<OnceCell<Client>>) {
        let mut current = self.current();
        if Arc::ptr_eq(&current, cell) {
            *current = Arc::default();
        }
    }
}

impl CompareAndSwap for Etcd {
    /// The `mod_revision`: the number of the cluster's write that last changed this key. It is
    /// unique, also if the key was removed in between.
    type Version = i64;

    async fn load(&self, key: &[u8]) -> Result<Loaded<i64>, StoreError> {
        // A linearizable read: it sees every write that any process has seen confirmed.
        self.ask(async |mut etcd| Ok(loaded(&etcd.get(key, None).await?)))
            .await
    }

    async fn swap(&self, key: &[u8], swap: Swap<'_, i64>) -> Result<Swapped<i64>, StoreError> {
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
            // A missing key has the `mod_revision` 0, and no other key has it.
            let expected = swap.expected.copied().unwrap_or(0);
            // One round trip also for a lost race: the transaction returns the current value.
            let txn = Txn::new()
                .when([Compare::mod_revision(key, CompareOp::Equal, expected)])
                .and_then([write])
                .or_else([TxnOp::get(key, None)]);
            match etcd.txn(txn).await {
                Ok(answer) if answer.succeeded() => {
                    // The new version is the revision in the answer's header.
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
                // The lease was revoked, or it expired while this process was suspended. Nothing
                // was written, so this counts as a lost race. The next attempt requests another
                // lease.
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
        // etcd returns no time: processes decide by their own clocks.
        now: None,
    }
}

impl Etcd {
    /// Creates a store for the cluster whose members have these URLs, such as
    /// `http://10.0.0.1:2379`. `options` set a user, TLS and so on.
    ///
    /// Without a user it returns at once and connects at the first call. With a user it signs in at
    /// each member, and at a member that does not do so within five seconds, at the first call to
    /// it.
    ///
    /// # Errors
    ///
    /// Returns an error if no URL is given, if one is invalid, or if etcd rejects the user.
    pub async fn connect(
        endpoints: &[impl AsRef<str>],
        options: ConnectOptions,
    ) -> Result<Self, StoreError> {
        // Only pings detect a member that vanished without closing the connection. etcd accepts one
        // ping in five seconds, and only while calls are in flight.
        //
        // A user's token expires at each member five minutes after its last use there.
        let options = options
            .with_keep_alive(Duration::from_secs(10), Duration::from_secs(1))
            .with_keep_alive_while_idle(false)
            .with_connect_timeout(CONNECT_TIMEOUT)
            .with_auto_token_refresh(true);
        let mut members = Vec::new();
        for endpoint in endpoints {
            let member = Member {
                endpoint: endpoint.as_ref().to_owned(),
                options: options.clone(),
                current: Mutex::default(),
            };
            let cell = Arc::clone(&member.current());
            if let Ok(Err(error)) = timeout(SIGN_IN_TIMEOUT, member.client(&cell)).await {
                let error = failure::store_error(error);
                // A majority is enough. `ask` signs in at the others once it needs them.
                if !is_of_the_member(&error) {
                    return Err(error);
                }
            }
            members.push(member);
        }
        if members.is_empty() {
            return Err(StoreError::other(
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

    /// Sets the deadline of each load and each swap. Default: 250 ms.
    ///
    /// A decision takes one load and one swap, and more of them if other processes write the same
    /// key.
    #[must_use]
    pub fn response_timeout(self, response_timeout: Duration) -> Self {
        Self {
            response_timeout,
            ..self
        }
    }

    /// Calls the current member. If it is down or silent, later calls use the next one.
    ///
    /// The failed call is not repeated, because it may have taken effect. The application chooses
    /// how to decide then.
    async fn ask<T>(
        &self,
        call: impl AsyncFnOnce(Client) -> Result<T, etcd_client::Error>,
    ) -> Result<T, StoreError> {
        let at = self.current.load(Relaxed);
        let member = &self.members[at % self.members.len()];
        let cell = Arc::clone(&member.current());
        let asked = async { call(member.client(&cell).await?).await };
        let answer = match timeout(self.response_timeout, asked).await {
            Ok(answer) => answer.map_err(failure::store_error),
            Err(_) => Err(StoreError::timeout()),
        };
        if let Err(error) = &answer
            && is_of_the_member(error)
        {
            // Of the calls that fail at the same member, only the first switches to the next one.
            let next = at.wrapping_add(1);
            let _ = self.current.compare_exchange(at, next, Relaxed, Relaxed);
            // A slow member keeps its client: to sign in again would take it longer.
            if error.is_unavailable() {
                member.give_up(&cell);
            }
        }
        answer
    }
}

/// Returns `true` if another member may answer.
fn is_of_the_member(error: &StoreError) -> bool {
    error.is_timeout() || error.is_unavailable()
}

impl fmt::Debug for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Etcd")
            .field("members", &self.members.len())
            .field("response_timeout", &self.response_timeout)
            .finish_non_exhaustive()
    }
}
