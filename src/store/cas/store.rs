//! The store and its counters, and calls about several keys.

use std::sync::Arc;

use super::{
    CasStoreBuilder, CompareAndSwap,
    sync::{count_node, sync},
    worker::{AnswerReceiver, Asks, SwapQueue, Work, receive},
};
use crate::{
    algorithm::{Algorithm, Codec, fits_shared},
    decision::Decision,
    key::Key,
    policy::Policy,
    stats::stats,
    store::{
        Ask, Backend, BoxFuture, Check, Decisions, Delta, FleetStore, NodeCounts, Settlement,
        Store, StoreError, StoreId, SyncFuture,
        ask::{ResolvedAsk, policies},
        engine::{Answers, Unsettled, given_back, runtime, spawn_detached},
        names::{key_name, nodes_name},
    },
};

/// A store of the compare-and-swap class, over anything that implements [`CompareAndSwap`].
///
/// It runs every rule whose state has a [`Codec`]: it loads the state of a key, decides by the
/// rule, swaps the old state for the new one, and repeats this if another process was faster.
/// Clones share one queue of calls.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{TokenBucket, prelude::*, store::driver::{CasStore, CompareAndSwap}};
///
/// fn limited(table: impl CompareAndSwap) {
///     let store = CasStore::new(table)
///         .timeout(Duration::from_millis(100))
///         .fail_closed();
///     let layer = RateLimitLayer::new(TokenBucket::per_second(10))
///         .key(PeerIp::new())
///         .store(store);
/// #   let _ = layer;
/// }
/// ```
///
/// [`CompareAndSwap`] shows a whole store in a map, and `examples/etcd` of the repository one over
/// a network.
///
/// # What is admitted
///
/// **One key: exactly what its rule admits,** however many tasks and processes ask. An admission is
/// returned after the swap that writes it. A refusal or a look is decided by a value that was read
/// after the call. A refusal costs one load, an admission one load and one swap. Calls of one
/// process that wait for the same key share a load and a swap, up to 256 of them, and are served in
/// the order in which they came. If a store returns the [version](super::Swapped::Done) that a swap
/// wrote, the next calls need no load.
///
/// **Several keys in one call** cannot be swapped at once. All are looked at first: if one refuses,
/// nothing is spent. Then all are charged. If one of them refuses now, because another call has
/// spent since, the others are settled back. Until then, their costs can make other calls be
/// refused. Several asks about one key and policy are decided together.
///
/// # Lost races
///
/// A call that loses the race for a key loads it again and tries again, after a random delay by
/// [`Backoff::full`](crate::backoff::Backoff::full). There is no delay the first time if the store
/// has returned [the current value](super::Swapped::Lost).
///
/// | a call | ends as | and was |
/// |---|---|---|
/// | loses [`attempts`](CasStoreBuilder::attempts) races, or still loses at the [`deadline`](CasStoreBuilder::deadline) | [contended](crate::store::StoreError::is_contended) | not charged |
/// | waits for an answer of the store at the deadline | [timed out](crate::store::StoreError::is_timeout), with all calls that wait behind it | charged once or not at all |
/// | gets an error of the store | that error | the same |
///
/// Contended is neither a refusal nor an outage: a [circuit
/// breaker](crate::store::StoreExt::circuit_breaker) does not count it, and
/// [`when_contended`](crate::store::OnFailure::when_contended), behind `fail_open` or
/// `fail_closed`, determines what happens to the request then: it is admitted, refused, or asked to
/// retry. An operation that may have taken place is never sent a second time, so no call is charged
/// twice.
///
/// Operations for each decision, and the time until all are made, where so many processes want one
/// decision each of one key at the same instant, over a network whose round trips take 16 to 24 ms;
/// simulated by `tests/stores/cas/contenders.rs`:
///
/// | processes | no back-off | `Backoff::full(4 ms, 256 ms)` | `Backoff::full(20 ms, 2 s)` |
/// |---|---|---|---|
/// | 1 | 2.0, 0.04 s | 2.0, 0.04 s | 2.0, 0.04 s |
/// | 2 | 3.0, 0.07 s | 3.0, 0.07 s | 3.0, 0.08 s |
/// | 5 | 6.0, 0.20 s | 6.0, 0.25 s | 4.8, 0.25 s |
/// | 10 | 11.0, 0.40 s | 9.0, 0.40 s | 6.4, 0.34 s |
/// | 20 | 19.1, 0.73 s | 11.6, 0.62 s | 9.3, 0.86 s |
/// | 50 | 33.8, 1.37 s | 16.0, 1.45 s | 12.1, 2.74 s |
/// | 100 | 53.8, 2.21 s | 22.9, 2.68 s | 14.4, 4.46 s |
/// | 200 | 97.9, 4.01 s | 34.5, 4.73 s | 17.4, 7.96 s |
///
/// A base of a fifth of a round trip to one round trip serves; the default is made for a store that
/// answers within a millisecond or a few. Tasks of one process are combined, and do not count. What
/// real servers make of it is in `BENCHMARKS.md`.
///
/// # Time
///
/// All processes decide by the clock of the store if the store returns [its
/// time](super::Loaded::now). Otherwise each decides by its own clock, and the state of a key
/// stands at the latest instant that any process has written, because no rule lets time step back
/// behind its last write. If the clocks of all hosts lie within d, less than a minute, a rule
/// admits in any span T at most what it admits in T + d: a host that is ahead spends up to d in
/// advance, once, and the key gets nothing more until the other hosts have caught up. Waits are
/// those of the host that decides. Calls [in flight](crate::InFlight#stores) need a lease well
/// above d.
///
/// # Stored data
///
/// `prefix:2:{client}:policy`, the client being a digest of 128 bits unless its key is
/// [labelled](crate::key::Key::labelled). The value holds a state of each
/// [kind](crate::algorithm::Algorithm::state_kind) of rule that charges the key:
///
/// | bytes | of a value |
/// |---|---|
/// | 1 | 0xf1, the version of this form |
/// | for each state 8 | its kind, the lowest byte first |
/// | up to 10 | until when it matters, in nanoseconds of Unix time, as LEB128 |
/// | up to 10 | its length, as LEB128 |
/// | so many | the state, as [`Codec`](crate::algorithm::Codec) writes it |
///
/// So a key that one rule charges takes about 20 bytes more than its state. A rule reads and
/// replaces the state of its own kind, and leaves the others as they are. Each state is dropped 15
/// minutes after its rule says that it no longer matters, at the next write, so that hosts whose
/// clocks differ by less forget nothing of each other. There are at most 16 states: of more, those
/// go that matter least long. The value expires with the last of its states, or a minute later if
/// the store returns no time; one without a state is removed. `reset` removes the value, and so
/// clears all kinds.
///
/// | value under a key | result of a call |
/// |---|---|
/// | written by another program, or a part of a value | that of a new key; the value is replaced by the next admission and counted in [`healed`](CasStats::healed) |
/// | a state of the rule's kind that cannot be read | the same; states of other kinds stay |
/// | a state of another kind | what the rule admits by its own state: no more than one limit for each kind, in whatever order the rules come |
/// | a state of the rule's kind, or a value, that a newer version of this program wrote | an error of that call [alone](crate::store::StoreError::is_unsupported), counted in [`newer`](CasStats::newer), until the key is reset or expires |
///
/// The last is no damage: while two versions share a store, each of them would begin afresh where
/// the other one had written, and mint a limit each time. So roll out the version that can read the
/// new form first. What two releases with different rules admit together, [the operators'
/// page](crate::operations#roll-outs) says.
///
/// With [leases](crate::store::Leased), `prefix:nodes:policy` has the [counts of
/// nodes](crate::store::driver::NodeCounts) as text, for half a minute.
///
/// # Cancellation
///
/// A call that is dropped before it is its turn spends nothing; one that is dropped later is
/// charged, once at most. One that would hold units gives them back. Settlements and resets go on
/// by themselves.
pub struct CasStore<C, Rule> {
    pub(super) prefix: Arc<str>,
    pub(super) queue: Arc<SwapQueue<C, Rule>>,
}

impl<C, Rule> CasStore<C, Rule> {
    /// Creates a store with [default settings](CasStoreBuilder).
    pub fn new(data: C) -> Self
    where
        C: CompareAndSwap,
        Rule: Algorithm<State: Codec>,
    {
        Self::builder_on(data).build()
    }

    /// Returns a builder of a store with other settings.
    pub fn builder_on(data: C) -> CasStoreBuilder<C, Rule>
    where
        C: CompareAndSwap,
        Rule: Algorithm<State: Codec>,
    {
        CasStoreBuilder::new(data)
    }

    /// Returns counters of this store and its clones.
    pub fn stats(&self) -> CasStats {
        self.queue.counters.read(self.queue.unsettled.count())
    }

    /// Returns the client that loads and swaps values.
    pub fn data(&self) -> &C {
        &self.queue.data
    }
}

impl_clone!(CasStore<C, Rule>, { prefix, queue });
impl_debug!(
    CasStore<C, Rule>,
    |it| prefix = it.prefix, settings = it.queue.settings, stats = it.stats()
);

stats! {
    /// Counters of a [`CasStore`] and its clones since it was built.
    ///
    /// ```
    /// use tollgate::store::CasStats;
    ///
    /// /// The share of swaps that lost a race against another process, in percent.
    /// fn contention(stats: &CasStats) -> u64 {
    ///     100 * stats.lost / stats.swaps.max(1)
    /// }
    /// # assert_eq!(contention(&CasStats::default()), 0);
    /// ```
    pub struct CasStats {
        counted {
            /// Loads sent.
            loads = "tollgate_cas_loads_total",
            /// Swaps sent.
            swaps = "tollgate_cas_swaps_total",
            /// Swaps that lost their race.
            lost = "tollgate_cas_lost_total",
            /// Calls, settlements and resets that were given up as contended.
            ///
            /// They end with an [error](crate::store::StoreError::is_contended).
            contended = "tollgate_cas_contended_total",
            /// Values, and states in them, that could not be read and counted as no state, each
            /// time that they were read.
            healed = "tollgate_cas_healed_total",
            /// Values, and states in them, that a newer version of the program wrote, each time
            /// that they were read.
            newer = "tollgate_cas_newer_total",
        }
        given {
            /// Settlements that gave nothing back because [too
            /// many](crate::LeakyBucket#calls-that-are-cancelled) did before, and those that
            /// failed, or whose answer was lost; also those by which a call about several keys
            /// returns what it has charged. They may have been made, so none is repeated.
            unsettled: u64 = "tollgate_store_unsettled_total"[],
        }
    }
    struct CasCounters;
}

impl<C: CompareAndSwap, Rule> Backend for CasStore<C, Rule> {
    type Error = StoreError;

    fn id(&self) -> Option<StoreId> {
        Some(StoreId::of(&self.queue))
    }

    fn address(&self) -> Option<&str> {
        self.queue.data.address()
    }

    fn unsettled(&self) -> Option<u64> {
        Some(self.queue.unsettled.count())
    }
}

/// Length of the longest state that a store transfers with each call, in bytes.
const MOST_BYTES: u64 = 64 * 1024;

impl<C, Rule> Store<Rule> for CasStore<C, Rule>
where
    C: CompareAndSwap,
    Rule: Algorithm<State: Codec>,
{
    type Answer = BoxFuture<Result<Decisions, StoreError>>;
    type Done = BoxFuture<Result<(), StoreError>>;

    fn acquire(&self, asks: &[Ask<'_, Rule>]) -> Check<Self::Answer> {
        if let Err(error) = asks.iter().try_for_each(|ask| self.fits(ask.rule())) {
            return Check::Ready(Err(StoreError::unsupported(error)));
        }
        let runtime = match runtime() {
            Ok(runtime) => runtime,
            Err(error) => return Check::Ready(Err(error)),
        };
        let mut groups = KeyGroup::of(&self.prefix, asks);
        let policies = policies(asks);
        let answer: BoxFuture<_> = match (groups.pop(), groups.is_empty()) {
            (None, _) => return Check::Ready(Ok(Decisions::default())),
            (Some(only), true) => {
                let answer = self.queue.ask(only.key, Work::Spend(only.asks));
                Box::pin(async move {
                    let answers = receive(answer).await?;
                    Ok(answers.decisions.of_policies(policies))
                })
            }
            (Some(last), false) => {
                groups.push(last);
                let queue = Arc::clone(&self.queue);
                let decided = spawn_detached(async move {
                    let decisions = all_or_none(queue, groups).await?;
                    Ok(decisions.of_policies(policies))
                });
                match decided {
                    Check::Pending(answer) => answer,
                    ready => return ready,
                }
            }
        };
        Check::Pending(given_back(self, runtime, asks, answer))
    }

    fn look(&self, asks: &[Ask<'_, Rule>]) -> Check<Self::Answer> {
        if let Err(error) = runtime() {
            return Check::Ready(Err(error));
        }
        let answers = asks.iter().map(|ask| {
            let key = key_name(&self.prefix, ask.policy(), ask.key());
            self.queue.ask(key, Work::Look(ask.own_rule()))
        });
        let answers: Vec<_> = answers.collect();
        Check::Pending(Box::pin(async move {
            let mut decisions = Vec::with_capacity(answers.len());
            for answer in answers {
                decisions.extend_from_slice(receive(answer).await?.decisions.as_slice());
            }
            Ok(decisions.into_iter().collect())
        }))
    }

    fn settle(&self, settlements: Vec<Settlement<'_, Rule>>) -> Check<Self::Done> {
        let answers = settlements.into_iter().map(|settlement| {
            let key = key_name(&self.prefix, settlement.policy, &settlement.key);
            let work = Work::Settle {
                rule: settlement.own_rule(),
                actual: settlement.actual,
                charge: settlement.charge,
            };
            self.queue.ask(key, work)
        });
        settled(&self.queue.unsettled, answers.collect())
    }

    fn reset(&self, policy: &Policy, key: &Key) -> Check<Self::Done> {
        if let Err(error) = runtime() {
            return Check::Ready(Err(error));
        }
        let key = key_name(&self.prefix, policy, key);
        let answer = self.queue.ask(key, Work::Reset);
        Check::Pending(Box::pin(async { receive(answer).await.map(drop) }))
    }

    fn fits(&self, rule: &Rule) -> Result<(), crate::Error> {
        fits_shared(rule)?;
        let bytes = rule.most_bytes();
        if bytes <= MOST_BYTES {
            return Ok(());
        }
        Err(crate::Error::new(format!(
            "a key can have a state of {} KiB, and a store that compares and swaps transfers all of it with each call: expected at most {} KiB; \
             take a smaller limit, a sliding window or a token bucket, or a store that decides beside the data, such as Redis",
            bytes.div_ceil(1024),
            MOST_BYTES / 1024,
        )))
    }

    fn fleet(&self) -> Option<&dyn FleetStore<Rule, Error = Self::Error>> {
        Some(self)
    }
}

impl<C, Rule> FleetStore<Rule> for CasStore<C, Rule>
where
    C: CompareAndSwap,
    Rule: Algorithm<State: Codec>,
{
    fn count_node(
        &self,
        policy: &Policy,
        period: u64,
    ) -> Option<BoxFuture<Result<NodeCounts, StoreError>>> {
        let queue = Arc::clone(&self.queue);
        let key = nodes_name(&self.prefix, policy);
        Some(Box::pin(
            async move { count_node(&queue, &key, period).await },
        ))
    }

    fn sync(&self, deltas: &[Delta<'_, Rule>]) -> Option<SyncFuture<Rule, StoreError>> {
        Some(sync(&self.queue, &self.prefix, deltas))
    }
}

/// Asks of a call about one key.
struct KeyGroup<Rule> {
    key: Box<[u8]>,
    asks: Asks<Rule>,
}

impl<Rule: Algorithm> KeyGroup<Rule> {
    /// Groups the asks of a call by key.
    fn of(prefix: &str, asks: &[Ask<'_, Rule>]) -> Vec<Self> {
        let mut groups: Vec<Self> = Vec::with_capacity(asks.len());
        for (index, ask) in asks.iter().enumerate() {
            let key = key_name(prefix, ask.policy(), ask.key());
            let ask = ResolvedAsk::new(ask, index);
            match groups.iter_mut().find(|group| group.key == key) {
                Some(group) => group.asks.push(ask),
                None => groups.push(Self {
                    key,
                    asks: Asks::from_iter([ask]),
                }),
            }
        }
        groups
    }
}

/// Spends all asks or none.
///
/// First all keys are probed, so that nothing is spent if one refuses. Then all are charged. If one
/// refuses now, because another call has spent in between, the others are settled back.
async fn all_or_none<C, Rule>(
    queue: Arc<SwapQueue<C, Rule>>,
    groups: Vec<KeyGroup<Rule>>,
) -> Result<Decisions, StoreError>
where
    C: CompareAndSwap,
    Rule: Algorithm<State: Codec>,
{
    let tried = at_once(&queue, &groups, Work::Probe).await;
    let tried = tried.into_iter().collect::<Result<Vec<_>, _>>()?;
    if !tried.iter().all(|answers| answers.decisions.is_admitted()) {
        return Ok(in_order(&groups, &tried, &tried));
    }
    let spent = at_once(&queue, &groups, Work::Spend).await;
    let is_admitted = |answers: &Result<Answers, StoreError>| {
        let answers = answers.as_ref();
        answers.is_ok_and(|answers| answers.decisions.is_admitted())
    };
    if !spent.iter().all(is_admitted) {
        settle_back(&queue, &groups, &spent).await;
    }
    let spent = spent.into_iter().collect::<Result<Vec<_>, _>>()?;
    Ok(in_order(&groups, &spent, &tried))
}

/// Does work on each group, all in flight at once.
async fn at_once<C, Rule>(
    queue: &Arc<SwapQueue<C, Rule>>,
    groups: &[KeyGroup<Rule>],
    work: impl Fn(Asks<Rule>) -> Work<Rule>,
) -> Vec<Result<Answers, StoreError>>
where
    C: CompareAndSwap,
    Rule: Algorithm<State: Codec>,
{
    let ask = |group: &KeyGroup<Rule>| queue.ask(group.key.clone(), work(group.asks.clone()));
    let answers: Vec<_> = groups.iter().map(ask).collect();
    let mut results = Vec::with_capacity(answers.len());
    for answer in answers {
        results.push(receive(answer).await);
    }
    results
}

/// Awaits settlements, and counts those that fail or refund nothing.
fn settled(
    unsettled: &Unsettled,
    answers: Vec<AnswerReceiver>,
) -> Check<BoxFuture<Result<(), StoreError>>> {
    let unsettled = unsettled.clone();
    let settling = unsettled.settling(answers.len());
    settling.make_each(answers.into_iter().map(move |answer| {
        let unsettled = unsettled.clone();
        async move {
            let answers = receive(answer).await?;
            unsettled.add(answers.forgets.into());
            Ok(())
        }
    }))
}

/// Refunds what was spent. If the store fails meanwhile, the charge stays, and counts as unsettled.
async fn settle_back<C, Rule>(
    queue: &Arc<SwapQueue<C, Rule>>,
    groups: &[KeyGroup<Rule>],
    spent: &[Result<Answers, StoreError>],
) where
    C: CompareAndSwap,
    Rule: Algorithm<State: Codec>,
{
    let mut answers = Vec::new();
    for (group, spent) in groups.iter().zip(spent) {
        let Ok(spent) = spent else { continue };
        if !spent.decisions.is_admitted() {
            continue;
        }
        for (ask, decision) in group.asks.iter().zip(spent.decisions.as_slice()) {
            if let Some(charge) = decision.charge() {
                let (rule, actual) = (ask.rule.clone(), 0);
                let work = Work::Settle {
                    rule,
                    charge,
                    actual,
                };
                answers.push(queue.ask(group.key.clone(), work));
            }
        }
    }
    // Its caller gets the answers of the keys, whatever became of the refunds.
    let _ = settled(&queue.unsettled, answers).await;
}

/// Returns the decisions in the order of the asks. If one refuses, those of the others are looks.
fn in_order<Rule>(groups: &[KeyGroup<Rule>], answers: &[Answers], tried: &[Answers]) -> Decisions {
    let all = answers
        .iter()
        .all(|answers| answers.decisions.is_admitted());
    let mut placed: Vec<(usize, Decision)> = Vec::with_capacity(groups.len());
    for ((group, answers), tried) in groups.iter().zip(answers).zip(tried) {
        let both = answers
            .decisions
            .as_slice()
            .iter()
            .zip(tried.looks.as_slice());
        let decisions = both.map(|(decision, look)| match decision {
            passes if passes.is_admitted() && !all => *look,
            _ => *decision,
        });
        placed.extend(group.asks.iter().map(|ask| ask.at).zip(decisions));
    }
    placed.sort_unstable_by_key(|(index, _)| *index);
    placed.into_iter().map(|(_, decision)| decision).collect()
}
