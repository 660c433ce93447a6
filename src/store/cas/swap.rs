//! What a store must be able to do, to be one of the compare-and-swap class.

use std::{future::Future, time::Duration};

use crate::{store::Error, time::Timestamp};

/// Replaces what is kept under a key if nobody has written it since: all that a store's author writes.
///
/// Values are opaque, most of them shorter than 120 bytes. Keys are `prefix:2:{client}:policy` in UTF-8; as long as prefix and
/// policy are printable ASCII without spaces, so are they. A store whose keys may not be that long, or not of such bytes,
/// keeps a digest of them instead.
///
/// [`Optimistic`](super::Optimistic) makes a store of it, which runs every rule whose state has a
/// [`Codec`](crate::algorithm::Codec).
///
/// # What to settle
///
/// - what a version is made of: something that no two writes of a key share, also across a removal, an expiry and a restart;
/// - that a lost race is [`Swapped::Lost`], and an error only what leaves it open whether the swap took place;
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
/// use tollgate::store::{CompareAndSwap, Error, Loaded, Optimistic, OptimisticBuilder, Swap, Swapped};
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
///     async fn load(&self, key: &[u8]) -> Result<Loaded<u64>, Error> {
///         Ok(self.table.lock().unwrap().read(key, self.clock.now()))
///     }
///
///     async fn swap(&self, key: &[u8], swap: Swap<'_, u64>) -> Result<Swapped<u64>, Error> {
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
///                 let row = Row { version, value: value.to_vec(), until: now.saturating_add(swap.keep) };
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
/// let store: Optimistic<_, AnyRule, _> = OptimisticBuilder::new(shelf).clock(clock.clone()).build();
/// // Several keys are not spent at once: the earlier ones are settled back where a later one refuses.
/// let suite = Suite::new(store).clock(clock).spawn(tokio::spawn).settling_back();
/// # let suite = suite.timelines(2);
/// let report = suite.run().await.unwrap();
/// assert_eq!(report.left_out(), [Law::Fault]);
/// # }
/// ```
///
/// # Cancellation
///
/// Futures may be dropped at any time; a swap that was sent may have taken place.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot compare and swap",
    note = "implement `CompareAndSwap` for what reads and replaces values, or `Store` for what decides itself"
)]
pub trait CompareAndSwap: Send + Sync + 'static {
    /// What tells two writes of one key apart: memcached's CAS unique, etcd's `mod_revision`, a column that counts.
    ///
    /// No two writes of a key may have the same, also when it was removed in between.
    type Version: Clone + Send + Sync + 'static;

    /// Reads what is kept under a key.
    ///
    /// # Errors
    ///
    /// When the store could not tell.
    fn load(&self, key: &[u8])
    -> impl Future<Output = Result<Loaded<Self::Version>, Error>> + Send;

    /// Replaces what is kept under a key if it is what the swap expects.
    ///
    /// A lost race is no error, but [`Swapped::Lost`]; so is it when a value has expired in between.
    ///
    /// # Errors
    ///
    /// When the store could not tell. The swap may have taken place; it is not sent again.
    fn swap(
        &self,
        key: &[u8],
        swap: Swap<'_, Self::Version>,
    ) -> impl Future<Output = Result<Swapped<Self::Version>, Error>> + Send;

    /// The address of the server, for the log of its failures, as [`Backend::address`](crate::store::Backend::address).
    fn address(&self) -> Option<&str> {
        None
    }
}

/// What is kept under a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded<V> {
    /// The value and its version; `None` where nothing is kept.
    pub value: Option<(V, Vec<u8>)>,
    /// The store's clock in Unix time, where it tells one: then it is by this clock that all processes decide.
    pub now: Option<Timestamp>,
}

/// What is to be kept under a key, and under which condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Swap<'a, V> {
    /// The version that must be there; `None`: nothing may be there.
    pub expected: Option<&'a V>,
    /// The new value; `None` removes the old one, and then a version is expected.
    pub value: Option<&'a [u8]>,
    /// How long the value matters: at least a nanosecond, at most 585 years.
    ///
    /// It may expire any time after that, and not before: a store that expires in steps rounds up, and one whose
    /// longest time is shorter lets what lies beyond it not expire at all.
    pub keep: Duration,
}

/// How a [`Swap`] ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Swapped<V> {
    /// It took place. The version that the new value has, where the store tells it: then those who wait for the same
    /// key need no load. `None` is always right, also after a removal.
    Done(Option<V>),
    /// Something else was there, and is still. What it was, where the store tells it with the same answer: it saves
    /// the next load. `None` is always right.
    Lost(Option<Loaded<V>>),
}
