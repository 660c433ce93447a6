//! The task that pushes to the store, and the counters.

use std::{
    sync::{Arc, MutexGuard, Weak, atomic::Ordering},
    time::Duration,
};

use smallvec::SmallVec;

use super::keys::{KeyViews, NODES, RuleBound, Shard, ShardSchedule};
use crate::{
    algorithm::{Algorithm, Syncable},
    fleet::{
        SyncConfig, SyncStats,
        shared::{FleetClock, InnerStore, Shared},
        stats::RecentMost,
        sync::{Bound, MAX_DELTAS, Unsent, together},
        tasks::Running,
    },
    key::Key,
    locks::lock,
    policy::Policy,
    store::{Backend, Batch, Delta, Pulled, StoreError},
    time::Timestamp,
};

/// The shortest time between two calls that nobody waits for, as a part of a period.
const TICKS: u32 = 20;

/// The parts that the clones of the wrapper share.
pub(super) type SyncedParts<S, Rule, C> = Shared<S, KeyViews<Rule>, SyncConfig<C>>;

/// The units of a key that are pushed to the store. If there are none, the state alone is asked
/// for.
struct KeyPush<Rule> {
    fingerprint: u64,
    generation: Option<u64>,
    policy: Policy,
    key: Key,
    rule: Rule,
    node: u64,
    /// The number of a delta of nothing.
    number: u64,
    unsent: SmallVec<[Unsent<Rule>; 1]>,
}

impl<Rule> KeyPush<Rule> {
    fn deltas(&self, now: Timestamp) -> impl Iterator<Item = Delta<'_, Rule>> {
        let delta = move |rule, number, age, units| {
            let batch = Batch {
                node: self.node,
                number,
            };
            Delta::new(&self.policy, rule, self.key, batch, (age, units))
        };
        let read = self
            .unsent
            .is_empty()
            .then(|| delta(&self.rule, self.number, Duration::ZERO, 0));
        let pushed = self.unsent.iter().map(move |unsent| {
            let age = now.saturating_since(unsent.at);
            delta(&*unsent.rule, unsent.number, age, unsent.units)
        });
        pushed.chain(read)
    }
}

/// Keys whose units are pushed. If that ends without an answer, with its runtime or by a
/// panic of the store, they push it again, and calls that wait try again.
struct Pushing<'a, S: InnerStore<Rule>, Rule: Syncable, C: FleetClock> {
    inner: &'a SyncedParts<S, Rule, C>,
    schedule: &'a ShardSchedule,
    /// Taken out when there is an answer.
    pushed: Vec<KeyPush<Rule>>,
    /// That of the task that pushes.
    running: &'a mut Option<Running>,
}

impl<S: InnerStore<Rule>, Rule: Syncable, C: FleetClock> Drop for Pushing<'_, S, Rule, C> {
    fn drop(&mut self) {
        self.schedule.is_syncing.store(false, Ordering::Relaxed);
        if !self.pushed.is_empty() {
            // First, so that calls that try again find no task, and spawn another one.
            drop(self.running.take());
            let now = self.inner.now();
            for pushed in &self.pushed {
                self.inner
                    .failed(pushed.fingerprint, pushed.generation, now, &Ok(()));
            }
        }
    }
}

impl<S, Rule: Syncable, C> SyncedParts<S, Rule, C> {
    /// Returns `true` if the store decides all calls of keys that have nothing to push.
    pub(super) fn is_off(&self) -> bool {
        self.keys.cannot_sync.load(Ordering::Relaxed) || self.is_closed()
    }

    /// Returns `true` after a flush: nothing is admitted here any more.
    pub(super) fn is_closed(&self) -> bool {
        self.keys.is_closed.load(Ordering::Acquire)
    }

    /// Returns the keys that wait for the part of the store that has a key.
    pub(super) fn schedule(&self, policy: &Policy, key: &Key) -> Arc<ShardSchedule>
    where
        S: Backend,
    {
        self.keys.schedule(self.store.shard(policy, key))
    }

    /// Returns the counters, but for the bound.
    pub(super) fn stats(&self, now: Timestamp) -> SyncStats {
        let counters = &self.keys.counters;
        let mut stats = SyncStats {
            waited: counters.waited.get(),
            in_store: counters.in_store.get(),
            syncs: counters.syncs.get(),
            failed: counters.failed.get() + self.nodes.failed.get(),
            pushed: counters.pushed.get(),
            dropped: counters.dropped.get(),
            lost: counters.lost.get(),
            drift: self.drift().most(now),
            nodes: self.nodes.number().unwrap_or(0),
            ..SyncStats::default()
        };
        let (mut shares, mut all_shares, mut rules) = (0, 0, Vec::new());
        for shard in self.keys.table.each() {
            stats.admitted += shard.counts.admitted;
            stats.refused += shard.counts.refused;
            stats.offline += shard.counts.offline;
            stats.over_capacity += shard.views.over_capacity;
            if let Some(RuleBound { rule, bound, .. }) = &shard.last_rule {
                stats.overshoot_bound = stats.overshoot_bound.max(overshoot(bound));
                rules.push(rule.clone());
            }
            stats.keys += shard.views.known.len() as u64;
            for (_, known) in shard.views.known.iter() {
                let view = &known.view;
                stats.unsynced += view.unsynced();
                let age = view.oldest().map_or(0, |oldest| now.nanos_since(oldest));
                stats.staleness_nanos = stats.staleness_nanos.max(age);
                stats.offline_bound = stats.offline_bound.max(view.offline_bound());
                if let Some(share) = view.share_permille() {
                    stats.least_share = match shares {
                        0 => share,
                        _ => stats.least_share.min(share),
                    };
                    stats.most_share = stats.most_share.max(share);
                    (shares, all_shares) = (shares + 1, all_shares + share);
                }
            }
        }
        let staleness = Duration::from_nanos(stats.staleness_nanos);
        let undershoot = |rule: &Rule| undershoot(rule, self.config.period, staleness);
        stats.undershoot_bound = rules.iter().map(undershoot).max().unwrap_or(0);
        stats.mean_share = u64::checked_div(all_shares, shares).unwrap_or(0);
        stats
    }

    fn drift(&self) -> MutexGuard<'_, RecentMost> {
        lock(&self.keys.counters.drift)
    }
}

/// Returns how many units all nodes together may admit above a rule.
pub(super) fn overshoot(bound: &Bound) -> u64 {
    let others = bound.nodes.map_or(0, |nodes| nodes.saturating_sub(1));
    bound.most.saturating_mul(others)
}

/// Returns how many units a rule refills before all of a key is pushed: after four periods, or
/// later if the store takes in less than is admitted.
pub(super) fn undershoot(rule: &impl Algorithm, period: Duration, staleness: Duration) -> u64 {
    let look = rule.look(None, Timestamp::default());
    look.quota().map_or(0, |quota| {
        let units = u128::from(quota.amount()) * (period * 4).max(staleness).as_nanos();
        u64::try_from(units.div_ceil(quota.period().as_nanos())).unwrap_or(u64::MAX)
    })
}

impl<S: InnerStore<Rule>, Rule: Syncable, C: FleetClock> SyncedParts<S, Rule, C> {
    /// Returns what this node may do alone under a rule. If the store cannot run the rule, its
    /// error is the answer, also while it cannot be reached.
    #[inline]
    pub(super) fn bound(&self, shard: &mut Shard<Rule>, rule: &Rule) -> Bound {
        let fits = || self.store.fits(rule).is_ok();
        shard.bound(rule, self.nodes.number(), &self.config, fits)
    }

    /// Lets a task push what the keys of a schedule have, as long as there are clones of
    /// the wrapper.
    ///
    /// # Errors
    ///
    /// Outside of a runtime of tokio, if there is no such task.
    // Under the locks of shards: a runtime that has shut down drops the future at once, so what it
    // captures must lock none.
    pub(super) fn serve(self: &Arc<Self>, schedule: &Arc<ShardSchedule>) -> Result<(), StoreError> {
        schedule
            .task
            .spawn(|running| serve(Arc::downgrade(self), Arc::clone(schedule), running))
    }

    /// Takes out what the next key of a schedule has to push now, and returns its number of deltas.
    fn next_push(
        self: &Arc<Self>,
        schedule: &Arc<ShardSchedule>,
        now: Timestamp,
    ) -> Option<(KeyPush<Rule>, usize)> {
        while let Some((due, fingerprint)) = schedule.take(now) {
            let mut shard = self.keys.table.shard(fingerprint);
            let Some((known, generation)) = shard.views.known.get_with_generation(fingerprint)
            else {
                continue;
            };
            if known.view.due() != due {
                continue;
            }
            let (policy, key) = &known.behind.owner;
            let at = self.schedule(policy, key);
            if !Arc::ptr_eq(&at, schedule) {
                // The store has moved the key. Whoever waits for it had the former schedule served.
                known.move_to(Arc::clone(&at), fingerprint);
                let _ = self.serve(&at);
                continue;
            }
            let mut number = || self.keys.next_number();
            known.clear_due(fingerprint);
            let unsent = known.view.send(now, &mut number).iter().cloned().collect();
            let pushed = KeyPush {
                fingerprint,
                generation: Some(generation),
                policy: known.behind.owner.0.clone(),
                key: known.behind.owner.1,
                rule: known.view.rule().clone(),
                // The store keeps the last number of a node and key, and kinds of rules are told
                // apart from each other.
                node: (self.keys.node ^ known.view.rule().state_kind().as_u64()) & NODES,
                number: number(),
                unsent,
            };
            let deltas = pushed.unsent.len().max(1);
            return Some((pushed, deltas));
        }
        None
    }

    /// Pushes what keys have to push now. Returns `None` if there was nothing, and else if
    /// the store has taken it in.
    async fn sync(
        self: &Arc<Self>,
        schedule: &Arc<ShardSchedule>,
        running: &mut Option<Running>,
    ) -> Option<bool> {
        let (sent, counters) = (self.now(), &self.keys.counters);
        let pushed = together(MAX_DELTAS, || self.next_push(schedule, sent));
        if pushed.is_empty() {
            return None;
        }
        let mut pushing = Pushing {
            inner: &**self,
            schedule,
            pushed,
            running,
        };
        let first = pushing.pushed.first()?;
        self.nodes.count(&first.policy, &self.store);
        let syncing = {
            let pushed = pushing.pushed.iter();
            let deltas: Vec<_> = pushed.flat_map(|pushed| pushed.deltas(sent)).collect();
            self.store.fleet().and_then(|store| store.sync(&deltas))
        };
        let Some(syncing) = syncing else {
            // The store cannot take in deltas, so nothing was admitted here, unless the node was
            // offline.
            self.keys.cannot_sync.store(true, Ordering::Relaxed);
            for pushed in std::mem::take(&mut pushing.pushed) {
                let mut shard = self.keys.table.shard(pushed.fingerprint);
                counters.lost.add(shard.remove(pushed.fingerprint));
            }
            return Some(true);
        };
        counters.syncs.add(1);
        schedule.is_syncing.store(true, Ordering::Relaxed);
        let answer = syncing.await;
        let pushed = std::mem::take(&mut pushing.pushed);
        let now = self.now();
        match answer {
            Ok(pulled) => {
                schedule.is_down.store(false, Ordering::Relaxed);
                if !self.answered(&pushed, pulled, (sent, now)) {
                    counters.failed.add(1);
                }
                Some(true)
            }
            Err(error) => {
                counters.failed.add(1);
                let is_unreachable = is_unreachable(&error);
                let result = Err(error);
                for pushed in pushed {
                    self.failed(pushed.fingerprint, pushed.generation, now, &result);
                }
                if is_unreachable {
                    schedule.is_down.store(true, Ordering::Relaxed);
                    // The others need not find out one after the other. They may be as many as
                    // there are keys, so other tasks have turns in between.
                    let others = std::iter::from_fn(|| schedule.take(now));
                    for (n, (_, fingerprint)) in others.enumerate() {
                        self.failed(fingerprint, None, now, &result);
                        if n % MAX_DELTAS == MAX_DELTAS - 1 {
                            tokio::task::yield_now().await;
                        }
                    }
                }
                Some(false)
            }
        }
    }

    /// Takes in the results of all deltas. Returns `false` if one of them failed that can be pushed
    /// again.
    fn answered(
        &self,
        pushed: &[KeyPush<Rule>],
        pulled: Vec<Result<Pulled<Rule::State>, StoreError>>,
        (sent, now): (Timestamp, Timestamp),
    ) -> bool {
        let (mut pulled, mut is_whole) = (pulled.into_iter(), true);
        for pushed in pushed {
            let results = pulled.by_ref().take(pushed.unsent.len().max(1));
            let mut taken_in = 0;
            // The last state of a key contains all its deltas.
            let last = results.enumerate().map(|(n, result)| {
                let unsent = pushed.unsent.get(n).filter(|_| result.is_ok());
                taken_in += unsent.map_or(0, |unsent| unsent.units);
                result
            });
            let Pulled { at, state } = match last.reduce(Result::and) {
                Some(Ok(pulled)) => pulled,
                Some(Err(error)) if error.is_unsupported() => {
                    self.leave_to_store(pushed, now, taken_in);
                    continue;
                }
                failed => {
                    let error = failed.and_then(Result::err).unwrap_or_else(|| {
                        StoreError::other(
                            "the store returned fewer states than it was asked for: expected one for each delta; nothing was taken in",
                        )
                    });
                    // The other keys were answered, so the store can be reached.
                    is_whole = false;
                    self.failed(pushed.fingerprint, pushed.generation, now, &Err(error));
                    continue;
                }
            };
            self.nodes.note_clock(at);
            let mut shard = self.keys.table.shard(pushed.fingerprint);
            let bound = self.bound(&mut shard, &pushed.rule);
            // After a reset it is another view, and the units were counted as dropped.
            let known = &mut shard.views.known;
            let Some(known) = known.get_of(pushed.fingerprint, pushed.generation) else {
                continue;
            };
            let others = known.with(pushed.fingerprint, |view| {
                view.answered((sent, at, now), state, &bound)
            });
            known.behind.waiting.wake(&Ok(()));
            self.drift().note(others, now);
            self.keys.counters.pushed.add(taken_in);
        }
        is_whole
    }

    /// Has the store decide the calls of a key for a while, because it cannot take in the units of
    /// the key.
    fn leave_to_store(&self, pushed: &KeyPush<Rule>, now: Timestamp, taken_in: u64) {
        let mut shard = self.keys.table.shard(pushed.fingerprint);
        let known = &mut shard.views.known;
        let Some(known) = known.get_of(pushed.fingerprint, pushed.generation) else {
            return;
        };
        let until = now.saturating_add(self.config.idle());
        let unsynced = known.view.leave_to_store(until);
        known.behind.waiting.wake(&Ok(()));
        let counters = &self.keys.counters;
        counters.pushed.add(taken_in);
        counters.dropped.add(unsynced.saturating_sub(taken_in));
    }

    /// Notes that a key could not be pushed, or that what was sent of one generation of it got no
    /// answer.
    fn failed(
        &self,
        fingerprint: u64,
        generation: Option<u64>,
        now: Timestamp,
        result: &Result<(), StoreError>,
    ) {
        let mut shard = self.keys.table.shard(fingerprint);
        let known = shard.views.known.get_of(fingerprint, generation);
        let Some(rule) = known.map(|known| known.view.rule().clone()) else {
            return;
        };
        let bound = self.bound(&mut shard, &rule);
        let Some(known) = shard.views.get(fingerprint) else {
            return;
        };
        known.clear_due(fingerprint);
        let is_unreachable = result.as_ref().is_err_and(is_unreachable);
        known.with(fingerprint, |view| view.failed(now, is_unreachable, &bound));
        known.behind.waiting.wake(result);
    }
}

/// Returns `true` if an error says nothing about the call, so that the node goes on alone.
pub(super) fn is_unreachable(error: &StoreError) -> bool {
    !error.is_contended() && !error.is_unsupported()
}

/// Pushes what the keys of a schedule have, until all clones of the wrapper are gone.
async fn serve<S: InnerStore<Rule>, Rule: Syncable, C: FleetClock>(
    inner: Weak<SyncedParts<S, Rule, C>>,
    schedule: Arc<ShardSchedule>,
    running: Running,
) {
    let mut running = Some(running);
    loop {
        let Some(strong) = inner.upgrade() else {
            return;
        };
        let period = strong.config.period;
        let synced = strong.sync(&schedule, &mut running).await;
        let now = strong.now();
        drop(strong);
        match synced {
            Some(true) => {
                // Many keys are pushed together, unless somebody waits.
                let _ = tokio::time::timeout(period / TICKS, schedule.hurry.notified()).await;
            }
            Some(false) => tokio::time::sleep(period).await,
            None => {
                let Some(next) = schedule.next() else {
                    schedule.wake.notified().await;
                    continue;
                };
                let wait = next.saturating_since(now).max(Duration::from_micros(1));
                let _ = tokio::time::timeout(wait, schedule.wake.notified()).await;
            }
        }
    }
}
