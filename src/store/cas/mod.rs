//! Stores that compare and swap: they replace a value if it has not been written since it was read.
//!
//! | file | |
//! |---|---|
//! | `mod` | the trait that connects the store to a server |
//! | `store` | the store and its counters; calls about several keys |
//! | `builder` | its settings |
//! | `worker` | the queue of each key, and its worker, which loads, decides and swaps |
//! | `cached` | the value of a key as this process knows it |
//! | `frame` | the value of a key: a state of each kind of rule, and the work on them |
//! | `sync` | deltas of nodes that decide by themselves, and the count of nodes |

mod builder;
mod cached;
mod frame;
mod store;
mod sync;
mod worker;

use std::{future::Future, time::Duration};

pub use self::{
    builder::CasStoreBuilder,
    store::{CasStats, CasStore},
};
use crate::{store::StoreError, time::Timestamp};

/// Loads values, and replaces them if they have not been written since.
///
/// Values are opaque, most of them shorter than 120 bytes. Keys are `prefix:2:{client}:policy` in
/// UTF-8; as long as prefix and policy are printable ASCII without spaces, so are they. A store
/// whose keys may not be that long, or not of such bytes, keeps a digest of them instead.
///
/// [`CasStore`] makes a store of it, which runs every rule whose state has a
/// [`Codec`](crate::algorithm::Codec).
///
/// # What to decide first
///
/// - what a version is made of: something that no two writes of a key share, also across a removal,
///   an expiry and a restart;
/// - that a lost race is [`Swapped::Lost`], and an error only what leaves it open whether the swap
///   took place;
/// - how its expiry is rounded, up, and what its longest one is;
/// - which keys it can hold: longer ones, or other bytes, become a digest;
/// - that what is evicted before its time begins afresh, and its clients with it. Say so.
///
/// # One in a map
///
/// It passes the conformance suite:
///
#[cfg_attr(feature = "test-util", doc = "```")]
#[cfg_attr(not(feature = "test-util"), doc = "```ignore")]
/// use std::{collections::HashMap, sync::Mutex};
/// use tollgate::{AnyRule, Timestamp, time::{Clock, ManualClock}};
/// use tollgate::store::StoreError;
/// use tollgate::store::driver::{CasStore, CompareAndSwap, Loaded, Swap, Swapped};
/// use tollgate::testing::conformance::{Law, Suite};
///
/// struct Row {
///     version: u64,
///     value: Vec<u8>,
///     until: Timestamp,
/// }
///
/// #[derive(Default)]
/// struct Table {
///     rows: HashMap<Vec<u8>, Row>,
///     writes: u64,
/// }
///
/// struct Shelf {
///     table: Mutex<Table>,
///     clock: ManualClock,
/// }
///
/// impl Table {
///     fn read(&mut self, key: &[u8], now: Timestamp) -> Loaded<u64> {
///         self.rows.retain(|_, row| row.until > now);
///         let row = self.rows.get(key);
///         // `now` would be the clock of the store; here it is that of the process.
///         Loaded { value: row.map(|row| (row.version, row.value.clone())), now: None }
///     }
/// }
///
/// impl CompareAndSwap for Shelf {
///     type Version = u64;
///
///     async fn load(&self, key: &[u8]) -> Result<Loaded<u64>, StoreError> {
///         Ok(self.table.lock().unwrap().read(key, self.clock.now()))
///     }
///
///     async fn swap(
///         &self,
///         key: &[u8],
///         swap: Swap<'_, u64>,
///     ) -> Result<Swapped<u64>, StoreError> {
///         let (mut table, now) = (self.table.lock().unwrap(), self.clock.now());
///         let there = table.read(key, now);
///         if there.value.as_ref().map(|(version, _)| version) != swap.expected {
///             return Ok(Swapped::Lost(Some(there)));
///         }
///         // No two writes bear the same version, also when the key was removed in between.
///         table.writes += 1;
///         let version = table.writes;
///         match swap.value {
///             Some(value) => {
///                 let row = Row {
///                     version,
///                     value: value.to_vec(),
///                     until: now.saturating_add(swap.keep),
///                 };
///                 table.rows.insert(key.to_vec(), row);
///             }
///             None => drop(table.rows.remove(key)),
///         }
///         Ok(Swapped::Done(Some(version)))
///     }
/// }
///
/// # #[tokio::main]
/// # async fn main() {
/// let clock = ManualClock::default();
/// let shelf = Shelf { table: Mutex::default(), clock: clock.clone() };
/// let store = CasStore::<_, AnyRule>::builder_on(shelf).clock(clock.clone()).build();
/// // Several keys are not spent at once: earlier ones are settled back if a later one refuses.
/// let suite = Suite::new(store).clock(clock).spawn(tokio::spawn).settling_back();
/// # let suite = suite.timelines(2);
/// let report = suite.run().await.unwrap();
/// assert_eq!(report.left_out(), [Law::Fault]);
/// # }
/// ```
///
/// Run the suite on two connections, too, through [`Alternating`](crate::testing::Alternating):
/// `CasStore` combines the calls for a key, so one connection does not show whether `swap`
/// compares.
///
/// # Cancellation
///
/// Futures may be dropped at any time; a swap that was sent may have taken place.
#[doc(alias("etcd", "dynamodb", "optimistic locking"))]
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot compare and swap",
    note = "implement `CompareAndSwap` for what reads and replaces values, or `Store` for what decides itself"
)]
pub trait CompareAndSwap: Send + Sync + 'static {
    /// The version of a value, such as memcached's CAS unique, etcd's `mod_revision`, or a column
    /// that counts writes.
    ///
    /// No two writes of a key may have the same version, also if the key was removed in between.
    type Version: Clone + Send + Sync + 'static;

    /// Returns the value under a key, with its version.
    ///
    /// # Errors
    ///
    /// Fails if the value could not be read.
    fn load(
        &self,
        key: &[u8],
    ) -> impl Future<Output = Result<Loaded<Self::Version>, StoreError>> + Send;

    /// Replaces the value under a key if its version is the expected one.
    ///
    /// A lost race is no error, but [`Swapped::Lost`]; so is it when a value has expired in
    /// between.
    ///
    /// # Errors
    ///
    /// Fails if it is not known whether the swap took place. It is not sent again.
    fn swap(
        &self,
        key: &[u8],
        swap: Swap<'_, Self::Version>,
    ) -> impl Future<Output = Result<Swapped<Self::Version>, StoreError>> + Send;

    /// Returns the address of the server, for the log of its failures, as
    /// [`Backend::address`](crate::store::Backend::address).
    fn address(&self) -> Option<&str> {
        None
    }
}

/// The value under a key, as [`CompareAndSwap::load`] returns it.
///
/// ```
/// use tollgate::store::driver::Loaded;
///
/// // Nothing is there, and the store has no clock of its own.
/// let empty = Loaded::<u64> { value: None, now: None };
/// # let _ = empty;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded<V> {
    /// The version and the value; `None` if there is no value.
    pub value: Option<(V, Vec<u8>)>,
    /// The store's clock in Unix time, if it has one. All processes then decide by this clock.
    pub now: Option<Timestamp>,
}

/// A conditional write: the expected version and the new value of a key.
///
/// The page of [`CompareAndSwap`] has a store that carries it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Swap<'a, V> {
    /// The version that the key must have; `None` if it must have no value.
    pub expected: Option<&'a V>,
    /// The new value; `None` removes the old one, and then a version is expected, too.
    pub value: Option<&'a [u8]>,
    /// The time for which the value must be kept: at least a nanosecond, at most 585 years.
    ///
    /// It may expire at any time after that, and not before. A store that expires in steps rounds
    /// up, and one whose longest time is shorter lets the value not expire at all.
    pub keep: Duration,
}

/// The result of a [`Swap`].
///
/// ```
/// use tollgate::store::driver::Swapped;
///
/// /// For a table that returns the number of changed rows, and no versions.
/// fn swapped(changed: u64) -> Swapped<u64> {
///     if changed == 1 { Swapped::Done(None) } else { Swapped::Lost(None) }
/// }
/// # assert_eq!(swapped(0), Swapped::Lost(None));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Swapped<V> {
    /// The swap took place. Contains the version of the new value if the store returns it, which
    /// saves the next call for this key a load. `None` is always right, also after a removal.
    Done(Option<V>),
    /// The key had another version, and nothing was written. Contains the value that was found if
    /// the store returns it with the same answer, which saves the next load. `None` is always
    /// right.
    Lost(Option<Loaded<V>>),
}
