//! The store and its counters.

use std::sync::Arc;

use super::{CounterStoreBuilder, Increment, decide::CounterDriver};
use crate::{
    algorithm::{Counted, slicing_for_keys},
    key::Key,
    policy::Policy,
    stats::stats,
    store::{
        Ask, Backend, BoxFuture, Check, Decisions, Delta, FleetStore, NodeCounts, Settlement,
        Store, StoreError, StoreId, SyncFuture,
        ask::policies,
        engine::{DetachOnDrop, detach_on_drop, spawn_detached},
        names::nodes_name,
    },
};

/// A store of the counter class: fixed and sliding windows, over anything that implements
/// [`Increment`].
///
/// It adds first, and decides by the total that is returned (*set-then-get*). Two calls at once get
/// different totals, and so never both take the last unit; a limiter that reads, decides and then
/// adds (*get-then-set*) lets both pass. The total becomes the state of the [rule](Counted), and
/// the rule decides as it does in memory: every number of a decision is the same.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{FixedWindow, prelude::*, store::driver::{CounterStore, Increment}};
///
/// fn limited(cache: impl Increment) {
///     let store = CounterStore::new(cache)
///         .timeout(Duration::from_millis(100))
///         .fail_open();
///     let layer = RateLimitLayer::new(FixedWindow::per_minute(100))
///         .key(PeerIp::new())
///         .store(store);
/// #   use std::{convert::Infallible, future::ready};
/// #   use http::{Request, Response};
/// #   use tower::{Layer, Service, service_fn};
/// #   fn serves(_: impl Service<Request<String>>) {}
/// #   serves(layer.layer(service_fn(|_: Request<String>| ready(Ok::<_, Infallible>(Response::<String>::default())))));
/// }
/// ```
///
/// It runs [`FixedWindow`](crate::FixedWindow), [`SlidingWindow`](crate::SlidingWindow), and an
/// [`AnyRule`](crate::AnyRule) of one of them. No other rule compiles. An error of each call is an
/// `AnyRule` of another algorithm, and windows [from the first
/// call](crate::FixedWindow::from_first_call), of which no counter can tell when they began.
///
/// # Operations per call
///
/// | a call that | operations, each one round trip |
/// |---|---|
/// | passes | `add` |
/// | is refused, and no refusal of the key is remembered | `add`, `subtract` |
/// | is refused while that refusal holds | `read` |
/// | passes while an earlier refusal holds, because units were refunded | `read`, `add` |
/// | costs more than the limit | `read` |
/// | is granted [more than its cost](crate::store::driver::Ask::up_to) | `add`, and `subtract` if more was asked for than remains |
/// | comes under a sliding window, within [`clocks_apart`](CounterStoreBuilder::clocks_apart) of the end of a slice | at most one `read` more |
/// | has several asks | the same for each, one after the other; one `read` for all |
///
/// This process remembers up to 6000 exhausted keys until more calls can pass. Their calls only
/// read. Beyond that number, keys are evicted, and the next refusal of an evicted key adds and
/// subtracts again. Decisions never depend on remembered keys.
/// [`remember_refusals`](crate::store::StoreExt::remember_refusals) around the store answers
/// without any operation, and does not notice the refunds of other nodes.
///
/// # Guarantees
///
/// **Never more than the limit**, from any number of nodes at any interleaving. In a fixed window a
/// call passes only if the counter of its window, itself included, is at most the limit. Under a
/// sliding window it passes only if the estimate, itself included, is; calls that meet at the
/// boundary of two slices add first and read each other's slice then, so that one of them at least
/// sees both.
///
/// **Refusals cost nothing in the end.** What a refused call has added is taken back before it is
/// answered, also when it is [dropped](#cancellation). Repeated refused calls do not use up the
/// limit.
///
/// **Other calls may be refused in the meantime.** The cost of a refused call is in the counter
/// until it is taken back, one round trip later. During that time, a call of a smaller cost that
/// would otherwise pass can be refused, with the wait of a window that is used up. This happens at
/// most once for each node and refusal, because the next call reads before it adds. In a fixed
/// window, calls of equal costs do not refuse each other in this way, unless units are refunded:
/// if one of them does not fit, none does.
///
/// # Grants
///
/// Of a fixed window, units are [granted ahead](crate::store::driver::Ask::up_to): as many as were
/// asked for, or all that remain. All that is asked for is added first, and the excess is in the
/// counter until it is taken back, as the cost of a refused call is. Under a sliding window the
/// cost alone is granted.
///
/// # Several asks
///
/// They are added one after the other. If one is refused, the earlier ones are taken back, and the
/// later ones are only read. Until they are taken back, their costs can make other calls be
/// refused.
///
/// # When something fails
///
/// | failure | effect |
/// |---|---|
/// | `add` fails, or is not answered | the call is undecided; it may be charged, once, until its slice counts no more |
/// | this process dies between `add` and `subtract`, or `subtract` fails | the refused call stays charged as long; [`stats`](CounterStore::stats) counts the latter |
/// | a counter is lost, by a restart, an eviction or a reset | its window begins afresh: at most a limit more passes, and what calls under way take back of it |
/// | a total is not a number, or below what was added | an error: undecided |
/// | a slice leaves a sliding window while a call is under way | it may or may not count for this call, as at the call's beginning or at its end |
/// | a sliding window's answer comes a whole window late | taken back, and a [timeout](crate::store::StoreError::is_timeout) |
///
/// # Cancellation
///
/// A call that is dropped before it was polled spends nothing. Later, it goes on by itself on
/// tokio's runtime, as if it had not been dropped: charged if it passes, taken back if not.
/// Settlements and resets go on by themselves from the beginning.
///
/// # Time
///
/// The time determines the counter, so it must be known before the store is asked. It is the time
/// of this process, or of the [clock](CounterStoreBuilder::clock) that was set, even if the server
/// has a clock of its own; by [that one](Increment::now), nodes are counted. If that clock steps
/// back, the time stands still.
///
/// Hosts whose clocks are `d` apart pass from one window to the next within `d` of each other. Each
/// counter holds its limit all the same; but in the time around a boundary, one host counts in the
/// old window and one in the new. So in any span of a window's length less `d`, at most two fixed
/// windows' limits pass, as by one clock. Under a sliding window, a host that is late sees what
/// others count in slices that have not begun for it, as long as `d` is at most
/// [`clocks_apart`](CounterStoreBuilder::clocks_apart), a second unless it is set, and less than a
/// window.
///
/// # When the rule changes
///
/// A counter holds what was admitted in a slice of time, whichever rule admitted it: another limit
/// meets the counters as they are. Windows of another length, offset or number of slices, and
/// sliding windows beside fixed ones, have counters of their own, which begin at
/// 0. So at such a change, and while rules of both forms run, a key gets at most the limit of each.
///    (In memory, windows of other lengths would be counted on.)
///
/// # Stored data
///
/// A counter for each key and slice, named by prefix, version, client, policy, window and number of
/// the slice, as `tollgate:2:{ab…}:api:1m/4@117815041`. It is made with an expiry: when its slice
/// counts no more, and `clocks_apart` later. With [leases](crate::store::Leased),
/// `tollgate:nodes:api:179562604` has the [number of nodes](crate::store::driver::NodeCounts) in a
/// period.
///
/// `reset` has no rule to derive windows from. It removes the counters of all windows that this
/// store or a clone has used or [learned](CounterStore::learn); without any it is an error. While
/// two releases run, let the store learn the windows of both.
///
/// # A store of your own
///
/// ```
/// use std::{collections::HashMap, sync::{Arc, Mutex}, time::Duration};
/// use tollgate::SlidingWindow;
/// use tollgate::store::StoreError;
/// use tollgate::store::driver::{CounterStore, Increment, Totals};
/// # use tollgate::time::ManualClock;
/// # use tollgate::testing::conformance::{Law, Suite};
///
/// /// Keeps its counters for ever; a real store lets them expire.
/// #[derive(Clone, Default)]
/// struct CounterMap(Arc<Mutex<HashMap<Box<[u8]>, u64>>>);
///
/// impl Increment for CounterMap {
///     async fn add(
///         &self,
///         key: &[u8],
///         amount: u64,
///         _: Duration,
///         beside: &[Box<[u8]>],
///     ) -> Result<Totals, StoreError> {
///         let mut counters = self.0.lock().unwrap();
///         let total = counters.entry(key.into()).or_default();
///         *total = total.saturating_add(amount);
///         let total = *total;
///         let beside = beside
///             .iter()
///             .map(|key| counters.get(key).copied().unwrap_or(0))
///             .collect();
///         Ok(Totals { total, beside })
///     }
///
///     async fn subtract(&self, key: &[u8], amount: u64) -> Result<(), StoreError> {
///         if let Some(total) = self.0.lock().unwrap().get_mut(key) {
///             *total = total.saturating_sub(amount);
///         }
///         Ok(())
///     }
///
///     async fn read(&self, keys: &[Box<[u8]>]) -> Result<Vec<u64>, StoreError> {
///         let counters = self.0.lock().unwrap();
///         Ok(keys.iter().map(|key| counters.get(key).copied().unwrap_or(0)).collect())
///     }
///
///     async fn remove(&self, keys: &[Box<[u8]>]) -> Result<(), StoreError> {
///         let mut counters = self.0.lock().unwrap();
///         keys.iter().for_each(|key| drop(counters.remove(key)));
///         Ok(())
///     }
/// }
///
/// # #[tokio::main] async fn main() {
/// // Windows of one length, of which `Law::Change` asks that nothing is minted. Leave it out for
/// // others.
/// let rules = [5, 9, 20].map(|limit| SlidingWindow::per_minute(limit).slices(4));
/// let clock = ManualClock::default();
/// let store = CounterStore::builder_on(CounterMap::default()).clock(clock.clone()).build();
/// // Without `repeating_deltas`, the suite would ask that a delta that arrives twice is added
/// // once: counters cannot tell.
/// let suite = Suite::with_rules(store, rules)
///     .clock(clock)
///     .spawn(tokio::spawn)
///     .settling_back()
///     .repeating_deltas();
/// let report = suite.run().await.unwrap();
/// // The suite was given no fault to cause.
/// assert_eq!(report.left_out(), [Law::Fault]);
/// # }
/// ```
pub struct CounterStore<I, Rule> {
    pub(super) driver: Arc<CounterDriver<I, Rule>>,
}

impl<I, Rule> CounterStore<I, Rule> {
    /// Creates a store with [default settings](CounterStoreBuilder).
    // With the bounds on the `impl`, the compiler would not say what to use instead.
    pub fn new(increment: I) -> Self
    where
        I: Increment,
        Rule: Counted,
    {
        Self::builder_on(increment).build()
    }

    /// Returns a builder of a store with other settings.
    pub fn builder_on(increment: I) -> CounterStoreBuilder<I, Rule>
    where
        I: Increment,
        Rule: Counted,
    {
        CounterStoreBuilder::new(increment)
    }
}

impl<I, Rule: Counted> CounterStore<I, Rule> {
    /// Adds a rule under which no call came yet, so that `reset` reaches its counters.
    ///
    /// # Errors
    ///
    /// Fails if counters cannot run the rule.
    pub fn learn(&self, rule: &Rule) -> Result<(), crate::Error> {
        self.driver.known.learn(rule)
    }

    /// Returns the client that adds to counters.
    pub fn data(&self) -> &I {
        &self.driver.increment
    }

    /// Returns counters of this store and its clones.
    pub fn stats(&self) -> CounterStats {
        self.driver.counts.read(self.driver.unsettled.count())
    }
}

impl_clone!(CounterStore<I, Rule>, { driver });

impl_debug!(CounterStore<I, Rule>, |it|
    prefix = it.driver.prefix, stats = it.driver.counts.read(it.driver.unsettled.count())
);

stats! {
    /// Counters of a [`CounterStore`] and its clones since it was built.
    ///
    /// ```
    /// use tollgate::store::CounterStats;
    ///
    /// /// Refused calls that cost two writes, because nothing showed that they would be refused.
    /// fn surprises(stats: &CounterStats) -> u64 {
    ///     stats.taken_back + stats.left_behind
    /// }
    /// # assert_eq!(surprises(&CounterStats::default()), 0);
    /// ```
    pub struct CounterStats {
        counted {
            /// Additions, one for each ask that was not refused before.
            additions = "tollgate_counters_additions_total",
            /// Readings: for calls that were likely to be refused, for looks, and for slices that
            /// began meanwhile.
            readings = "tollgate_counters_readings_total",
            /// Additions that were refused and taken back.
            taken_back = "tollgate_counters_taken_back_total",
            /// Grants of less than was asked for: more was added, and taken back.
            cut = "tollgate_counters_cut_total",
            /// Additions that were refused, and those above a grant, that could not be taken back.
            ///
            /// They count until their slice no longer counts.
            left_behind = "tollgate_counters_left_behind_total",
            /// Units of background synchronisation whose addition failed or was given up, each
            /// once; they may have been added, and are not added again.
            doubtful = "tollgate_counters_doubtful_units_total",
        }
        given {
            /// Settlements that failed, or whose answer was lost. They may have been made, so none
            /// is repeated.
            unsettled: u64 = "tollgate_store_unsettled_total"[],
        }
    }
    struct OperationCounts;
}

impl<I: Increment, Rule> Backend for CounterStore<I, Rule> {
    type Error = StoreError;

    fn id(&self) -> Option<StoreId> {
        Some(StoreId::of(&self.driver))
    }

    fn address(&self) -> Option<&str> {
        self.driver.increment.address()
    }

    fn unsettled(&self) -> Option<u64> {
        Some(self.driver.unsettled.count())
    }
}

impl<I, Rule> Store<Rule> for CounterStore<I, Rule>
where
    I: Increment,
    Rule: Counted,
{
    type Answer = DetachOnDrop<Result<Decisions, StoreError>>;
    type Done = BoxFuture<Result<(), StoreError>>;

    fn acquire(&self, asks: &[Ask<'_, Rule>]) -> Check<Self::Answer> {
        let driver = Arc::clone(&self.driver);
        match driver.resolve(asks) {
            Ok(owned) => {
                let policies = policies(asks);
                let work = async move {
                    let decisions = driver.acquire(&owned).await?;
                    Ok(decisions.of_policies(policies))
                };
                // So that a refused addition is taken back in any case.
                Check::Pending(detach_on_drop(work))
            }
            Err(error) => Check::Ready(Err(StoreError::unsupported(error))),
        }
    }

    fn look(&self, asks: &[Ask<'_, Rule>]) -> Check<Self::Answer> {
        let driver = Arc::clone(&self.driver);
        match driver.resolve(asks) {
            Ok(owned) => {
                let work = async move { driver.look(&owned).await };
                Check::Pending(detach_on_drop(work).attached())
            }
            Err(error) => Check::Ready(Err(StoreError::unsupported(error))),
        }
    }

    fn settle(&self, settlements: Vec<Settlement<'_, Rule>>) -> Check<Self::Done> {
        let driver = Arc::clone(&self.driver);
        let settling = driver.unsettled.settling(settlements.len());
        let owned = |it: Settlement<'_, Rule>| {
            let set = driver.counter_set(it.policy, &it.key, it.rule)?;
            driver.refusals.forget(set.hash);
            Ok((set, it.charge, it.actual))
        };
        let owned: Result<Vec<_>, crate::Error> = settlements.into_iter().map(owned).collect();
        match owned {
            Ok(owned) => settling.make_each(owned.into_iter().map(move |(set, charge, actual)| {
                let driver = Arc::clone(&driver);
                async move { driver.settle(&set, &charge, actual).await }
            })),
            Err(error) => Check::Ready(Err(StoreError::unsupported(error))),
        }
    }

    fn reset(&self, policy: &Policy, key: &Key) -> Check<Self::Done> {
        let driver = Arc::clone(&self.driver);
        let sets = driver
            .known
            .each(|rule| driver.counter_set(policy, key, rule));
        match sets {
            Ok(sets) => spawn_detached(async move {
                for set in &sets {
                    driver.refusals.forget(set.hash);
                }
                driver.reset(&sets).await
            }),
            Err(error) => Check::Ready(Err(StoreError::unsupported(error))),
        }
    }

    fn fits(&self, rule: &Rule) -> Result<(), crate::Error> {
        slicing_for_keys(rule).map(drop)
    }

    fn fleet(&self) -> Option<&dyn FleetStore<Rule, Error = Self::Error>> {
        Some(self)
    }
}

impl<I, Rule> FleetStore<Rule> for CounterStore<I, Rule>
where
    I: Increment,
    Rule: Counted,
{
    fn count_node(
        &self,
        policy: &Policy,
        period: u64,
    ) -> Option<BoxFuture<Result<NodeCounts, StoreError>>> {
        let driver = Arc::clone(&self.driver);
        let prefix = nodes_name(&driver.prefix, policy);
        Some(Box::pin(
            async move { driver.count_node(&prefix, period).await },
        ))
    }

    /// Adds each delta once at most: one whose addition has failed is [not
    /// repeated](CounterStats::doubtful).
    fn sync(&self, deltas: &[Delta<'_, Rule>]) -> Option<SyncFuture<Rule, StoreError>> {
        let driver = Arc::clone(&self.driver);
        let delta = |delta| driver.delta(delta).map_err(StoreError::unsupported);
        let deltas = deltas.iter().map(delta).collect();
        Some(Box::pin(async move { driver.sync(deltas).await }))
    }
}
