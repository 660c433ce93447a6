//! The views of all keys of this node, and the keys that wait for one part of the store.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use tokio::sync::Notify;

use crate::{
    algorithm::{StateKind, Syncable},
    decision::Decision,
    fleet::{
        SyncConfig, SyncStats,
        config::Common,
        keys::{Answered, KeyTable, LOOKS_OF_ROUND, Waiting},
        stats::RecentMost,
        sync::{Bound, Due, KeyView, Schedule, ViewEntry, Views},
        tasks::{OneTask, Sweep},
    },
    key::Key,
    locks::lock,
    policy::Policy,
    random::{self, Random},
    stats::Counter,
    store::Ask,
    time::Timestamp,
};

/// The most kinds of rules whose keys are found at a reset. More than a program has.
const MOST_KINDS: usize = 64;
/// The greatest number of a node: scripts count by such numbers.
pub(super) const NODES: u64 = (1 << 53) - 1;

/// The views of all keys of this node, each found by its fingerprint.
pub(super) struct KeyViews<Rule: Syncable> {
    pub(super) table: KeyTable<Shard<Rule>>,
    kinds: Mutex<Vec<StateKind>>,
    schedules: Mutex<HashMap<u32, Arc<ShardSchedule>>>,
    /// Draws no number twice: a node that is started again is another one.
    pub(super) node: u64,
    batch: AtomicU64,
    /// `true` once the store has answered that it cannot take in deltas.
    pub(super) cannot_sync: AtomicBool,
    /// `true` after a flush.
    pub(super) is_closed: AtomicBool,
    pub(super) counters: SyncCounters,
}

/// Calls that were not decided here alone, and calls to the store.
#[derive(Default)]
pub(super) struct SyncCounters {
    pub(super) waited: Counter,
    pub(super) in_store: Counter,
    pub(super) dropped: Counter,
    pub(super) syncs: Counter,
    pub(super) failed: Counter,
    pub(super) pushed: Counter,
    pub(super) lost: Counter,
    pub(super) drift: Mutex<RecentMost>,
}

/// A part of the keys behind a lock.
pub(super) struct Shard<Rule: Syncable> {
    pub(super) views: Views<KeyEntry<Rule>>,
    pub(super) last_rule: Option<RuleBound<Rule>>,
    /// Calls that were decided here.
    pub(super) counts: SyncStats,
}

/// A call that waits for the store: the answer, and the keys with which its key is pushed.
pub(super) type WaitingCall = (Answered, Arc<ShardSchedule>);

/// The view of a key under rules of one kind, and the calls that wait for it.
pub(super) struct KeyEntry<Rule: Syncable> {
    pub(super) view: KeyView<Rule>,
    /// Behind a pointer, because most calls do not read it.
    pub(super) behind: Box<EntryBehind>,
    pub(super) schedule: Arc<ShardSchedule>,
    /// When it is due, as the schedule knows it.
    noted: Due,
}

/// The limit and the key of an entry, and the calls that wait for the store.
pub(super) struct EntryBehind {
    pub(super) owner: (Policy, Key),
    pub(super) waiting: Waiting,
}

/// The rule of the last call, and what a node may do alone under it. Most keys come under few
/// rules.
pub(super) struct RuleBound<Rule> {
    pub(super) rule: Rule,
    nodes: Option<u64>,
    pub(super) bound: Bound,
    is_syncable: bool,
}

impl<Rule: Syncable> KeyViews<Rule> {
    pub(super) fn new<C>(config: &SyncConfig<C>, cannot_sync: bool) -> Self {
        let Common { keys, seed, .. } = config.common;
        let shard = |most| Shard {
            views: Views::new(most, config.idle()),
            last_rule: None,
            counts: SyncStats::default(),
        };
        Self {
            table: KeyTable::new(keys, seed, shard),
            kinds: Mutex::default(),
            schedules: Mutex::default(),
            node: Random::new(seed.unwrap_or_else(random::seed)).up_to(NODES),
            batch: AtomicU64::new(1),
            cannot_sync: AtomicBool::new(cannot_sync),
            is_closed: AtomicBool::new(false),
            counters: SyncCounters::default(),
        }
    }

    /// Returns the keys that wait for a part of the store.
    pub(super) fn schedule(&self, shard: u32) -> Arc<ShardSchedule> {
        let mut schedules = lock(&self.schedules);
        Arc::clone(schedules.entry(shard).or_default())
    }

    /// Returns the number of the next delta.
    pub(super) fn next_number(&self) -> u64 {
        self.batch.fetch_add(1, Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn fingerprint(&self, policy: &Policy, key: &Key, rule: &Rule) -> u64 {
        self.table.fingerprint(policy, key, rule.state_kind())
    }

    /// Notes that keys come under rules of a kind.
    pub(super) fn note_kind(&self, kind: StateKind) {
        let mut kinds = lock(&self.kinds);
        if !kinds.contains(&kind) && kinds.len() < MOST_KINDS {
            kinds.push(kind);
        }
    }

    /// Drops what is known of a key.
    pub(super) fn drop_key(&self, policy: &Policy, key: &Key) {
        for fingerprint in self.fingerprints(policy, key) {
            // Calls that wait try again when their senders are gone.
            let dropped = self.table.shard(fingerprint).remove(fingerprint);
            self.counters.dropped.add(dropped);
        }
    }

    /// Has the state of a key read anew before it is used, because it was reset in the store.
    pub(super) fn outdate(&self, policy: &Policy, key: &Key) {
        for fingerprint in self.fingerprints(policy, key) {
            if let Some(known) = self.table.shard(fingerprint).views.get(fingerprint) {
                known.view.outdate();
            }
        }
    }

    /// Returns the fingerprints of a key, one for each kind of rules.
    fn fingerprints(&self, policy: &Policy, key: &Key) -> Vec<u64> {
        let kinds = lock(&self.kinds);
        let of_kind = |kind: &StateKind| self.table.fingerprint(policy, key, *kind);
        kinds.iter().map(of_kind).collect()
    }
}

impl<Rule: Syncable> Drop for KeyViews<Rule> {
    /// Ends the tasks.
    fn drop(&mut self) {
        for schedule in lock(&self.schedules).values() {
            schedule.wake.notify_one();
        }
    }
}

impl<Rule: Syncable> Sweep for KeyViews<Rule> {
    fn sweeping(&self) -> &OneTask {
        &self.table.sweeping
    }

    fn forget_idle(&self, now: Timestamp) -> Option<Timestamp> {
        let shards = self.table.each();
        shards
            .filter_map(|mut shard| shard.views.forget_idle(now, LOOKS_OF_ROUND))
            .min()
    }
}

impl<Rule: Syncable> Shard<Rule> {
    /// Returns what a node may do alone under a rule, which may fit the store or not.
    #[inline]
    pub(super) fn bound<C>(
        &mut self,
        rule: &Rule,
        nodes: Option<u64>,
        config: &SyncConfig<C>,
        fits: impl FnOnce() -> bool,
    ) -> Bound {
        if let Some(last) = &self.last_rule
            && last.rule == *rule
            && last.nodes == nodes
        {
            return last.bound;
        }
        let number = self.last_rule.as_ref().map_or(0, |last| last.bound.number);
        let bound = Bound {
            number: number + 1,
            ..config.bound(rule, nodes)
        };
        self.last_rule = Some(RuleBound {
            rule: rule.clone(),
            nodes,
            bound,
            is_syncable: rule.check_sync().is_ok() && fits(),
        });
        bound
    }

    /// Returns `true` if a node may decide alone by the rule whose bound was asked for last.
    #[inline]
    pub(super) fn is_syncable(&self) -> bool {
        self.last_rule.as_ref().is_none_or(|last| last.is_syncable)
    }

    /// Counts a call that was decided here.
    #[inline]
    pub(super) fn count(&mut self, decision: &Decision, is_offline: bool) {
        self.counts.offline += u64::from(is_offline);
        match decision.is_admitted() {
            true => self.counts.admitted += 1,
            false => self.counts.refused += 1,
        }
    }

    /// Removes a key. Returns the units that the store may not know.
    pub(super) fn remove(&mut self, fingerprint: u64) -> u64 {
        let known = self.views.remove(fingerprint);
        known.map_or(0, |known| known.view.unsynced())
    }
}

impl<Rule: Syncable> ViewEntry for KeyEntry<Rule> {
    type Rule = Rule;

    #[inline]
    fn view(&mut self) -> &mut KeyView<Rule> {
        &mut self.view
    }

    fn is_settled(&mut self) -> bool {
        self.view.is_settled() && self.behind.waiting.is_empty()
    }

    fn removed(&mut self, fingerprint: u64) {
        self.schedule.change(fingerprint, self.noted, Due::NEVER);
    }
}

impl<Rule: Syncable> KeyEntry<Rule> {
    #[cold]
    pub(super) fn new(
        (ask, rule): (&Ask<'_, Rule>, &Rule),
        now: Timestamp,
        schedule: Arc<ShardSchedule>,
    ) -> Self {
        Self {
            view: KeyView::new(rule.clone(), now),
            behind: Box::new(EntryBehind {
                owner: (ask.policy().clone(), *ask.key()),
                waiting: Waiting::default(),
            }),
            schedule,
            noted: Due::NEVER,
        }
    }

    /// Does something with the view, and notes when it is due.
    pub(super) fn with<T>(
        &mut self,
        fingerprint: u64,
        change: impl FnOnce(&mut KeyView<Rule>) -> T,
    ) -> T {
        let result = change(&mut self.view);
        self.reschedule(fingerprint);
        result
    }

    /// Notes in the schedule if the view is due at another instant than before.
    #[inline]
    pub(super) fn reschedule(&mut self, fingerprint: u64) {
        let at = self.view.due();
        let is_write = self.view.unsynced() > 0;
        if self.noted.at != at || self.noted.is_write != is_write {
            self.note(fingerprint, Due { at, is_write });
        }
    }

    #[inline(never)]
    fn note(&mut self, fingerprint: u64, due: Due) {
        let before = std::mem::replace(&mut self.noted, due);
        if before.at < Timestamp::MAX || due.at < Timestamp::MAX {
            self.schedule.change(fingerprint, before, due);
        }
    }

    /// Notes that the schedule has taken it out, because it is due.
    pub(super) fn clear_due(&mut self, fingerprint: u64) {
        self.view.clear_due();
        self.note(fingerprint, Due::NEVER);
    }

    /// Moves it to another schedule, where it is due at once.
    pub(super) fn move_to(&mut self, schedule: Arc<ShardSchedule>, fingerprint: u64) {
        self.removed(fingerprint);
        self.schedule = schedule;
        self.schedule.change(fingerprint, Due::NEVER, self.noted);
    }

    /// Waits for the store.
    pub(super) fn wait(&mut self) -> WaitingCall {
        self.schedule.hurry.notify_one();
        (self.behind.waiting.wait(), Arc::clone(&self.schedule))
    }
}

/// The keys of one [part of the store](crate::store::Backend::shard) that wait for it, found by
/// their fingerprints. One call of them to it is under way at a time.
#[derive(Default)]
pub(super) struct ShardSchedule {
    schedule: Mutex<Schedule>,
    /// Wakes the task that calls the store.
    pub(super) wake: Notify,
    /// Told when a call waits for the store.
    pub(super) hurry: Notify,
    pub(super) task: OneTask,
    /// `true` from a failure to the next success.
    pub(super) is_down: AtomicBool,
    /// `true` while a call to the store is under way.
    pub(super) is_syncing: AtomicBool,
}

impl ShardSchedule {
    /// Notes that a key is due at another instant than before, or with something else.
    pub(super) fn change(&self, fingerprint: u64, before: Due, after: Due) {
        let is_first = {
            let mut schedule = self.schedule();
            let is_first = schedule.next().is_none_or(|next| after.at < next);
            schedule.change(fingerprint, before, after);
            is_first && after != Due::NEVER
        };
        if is_first {
            self.wake.notify_one();
        }
    }

    /// Takes out a key that is due.
    pub(super) fn take(&self, now: Timestamp) -> Option<(Timestamp, u64)> {
        self.schedule().take(now)
    }

    /// Returns when there is something to do.
    pub(super) fn next(&self) -> Option<Timestamp> {
        self.schedule().next()
    }

    /// Returns the number of keys that are due.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.schedule().len()
    }

    pub(super) fn is_down(&self) -> bool {
        self.is_down.load(Ordering::Relaxed)
    }

    pub(super) fn is_syncing(&self) -> bool {
        self.is_syncing.load(Ordering::Relaxed)
    }

    fn schedule(&self) -> MutexGuard<'_, Schedule> {
        lock(&self.schedule)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{algorithm::TokenBucket, decision::Cost};

    /// A key that is reset and called again, over and over: nothing grows but the number of the
    /// last one.
    #[test]
    fn ten_thousand_resets_take_no_memory() {
        let views = KeyViews::<TokenBucket>::new(&SyncConfig::new().keys(1000).seed(1), false);
        let (rule, policy, schedule) = (
            TokenBucket::per_second(10),
            Policy::new("api"),
            Arc::default(),
        );
        let now = Timestamp::from_nanos(1);
        let bound = SyncConfig::new().max_unsynced(5).bound(&rule, Some(2));
        views.note_kind(crate::algorithm::Algorithm::state_kind(&rule));
        for n in 0..10_000u64 {
            let key = Key::from(n % 3);
            let ask = Ask::new(&policy, &rule, key, Cost::ONE);
            let fingerprint = views.fingerprint(&policy, &key, &rule);
            let mut shard = views.table.shard(fingerprint);
            let entry = || KeyEntry::new((&ask, &rule), now, Arc::clone(&schedule));
            let (known, _) = shard.views.get_or_add(fingerprint, now, entry).unwrap();
            known.with(fingerprint, |view| {
                // It is due at once, and later.
                let _ = view.acquire(&rule, now, (Cost::ONE, false), &bound);
                view.failed(now, true, &bound);
            });
            assert!(
                schedule.len() <= 3,
                "{} entries of three keys",
                schedule.len()
            );
            drop(shard);
            views.drop_key(&policy, &key);
        }
        assert_eq!(schedule.len(), 0);
    }
}
