//! The accounts of all keys of this node, and the keys that wait for one part of the store.

use std::{
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::sync::Notify;

use crate::{
    algorithm::{StateKind, Syncable},
    decision::Decision,
    fleet::{
        SyncConfig,
        keys::{Answered, KeyTable, Waiting, lock},
        sync::{Account, Agenda, Book, Bound, Due, Entry, Found},
        tasks::OneTask,
    },
    key::Key,
    policy::Policy,
    store::Ask,
    time::Timestamp,
};

/// The most kinds of rules whose keys are found at a reset. More than a program has.
const MOST_KINDS: usize = 64;

/// The accounts of all keys of this node, each found by its fingerprint.
pub(super) struct Accounts<Rule: Syncable> {
    pub(super) table: KeyTable<Shard<Rule>>,
    kinds: Mutex<Vec<StateKind>>,
}

/// A part of the keys behind a lock.
pub(super) struct Shard<Rule: Syncable> {
    pub(super) book: Book<Rule, Known<Rule>>,
    last_rule: Option<LastRule<Rule>>,
    pub(super) counts: Counts,
}

/// Calls that were decided here.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) admitted: u64,
    pub(super) refused: u64,
    pub(super) cut_off: u64,
}

/// The account of a key under rules of one kind, and the calls that wait for it.
pub(super) struct Known<Rule: Syncable> {
    pub(super) place: Box<(Policy, Key)>,
    pub(super) account: Account<Rule>,
    /// Calls that wait for the store.
    pub(super) waiting: Waiting,
    pub(super) line: Arc<Line>,
    /// When it is due, as the line knows it.
    noted: Due,
}

/// The rule of the last call, and what a node may do alone under it. Most keys come under few
/// rules.
struct LastRule<Rule> {
    rule: Rule,
    nodes: Option<u64>,
    bound: Bound,
    is_syncable: bool,
}

impl Counts {
    pub(super) fn add(&mut self, decision: &Decision, is_cut_off: bool) {
        self.cut_off += u64::from(is_cut_off);
        match decision.is_admitted() {
            true => self.admitted += 1,
            false => self.refused += 1,
        }
    }
}

impl<Rule: Syncable> Accounts<Rule> {
    pub(super) fn new(keys: usize, seed: Option<u64>, idle: Duration) -> Self {
        let shard = |most| Shard {
            book: Book::new(most, idle),
            last_rule: None,
            counts: Counts::default(),
        };
        Self {
            table: KeyTable::new(keys, seed, shard),
            kinds: Mutex::default(),
        }
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

    /// Drops what is known of a key. Returns the units that the store may not know.
    pub(super) fn drop_key(&self, policy: &Policy, key: &Key) -> u64 {
        let mut dropped = 0;
        for fingerprint in self.fingerprints(policy, key) {
            // Calls that wait try again when their senders are gone.
            dropped += self.table.shard(fingerprint).remove(fingerprint);
        }
        dropped
    }

    /// Has the state of a key read anew before it is used, because it was reset in the store.
    pub(super) fn outdate(&self, policy: &Policy, key: &Key) {
        for fingerprint in self.fingerprints(policy, key) {
            if let Some(known) = self.table.shard(fingerprint).book.get(fingerprint) {
                known.account.outdate();
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

impl<Rule: Syncable> Shard<Rule> {
    /// Returns what a node may do alone under a rule.
    #[inline]
    pub(super) fn bound<C>(
        &mut self,
        rule: &Rule,
        nodes: Option<u64>,
        config: &SyncConfig<C>,
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
        self.last_rule = Some(LastRule {
            rule: rule.clone(),
            nodes,
            bound,
            is_syncable: rule.check_sync().is_ok(),
        });
        bound
    }

    /// Returns `true` if a node may decide alone by the rule whose bound was asked for last.
    #[inline]
    pub(super) fn is_syncable(&self) -> bool {
        self.last_rule.as_ref().is_none_or(|last| last.is_syncable)
    }

    /// Returns the rule of the last call, and what a node may do alone under it.
    pub(super) fn last_rule(&self) -> Option<(&Rule, &Bound)> {
        self.last_rule
            .as_ref()
            .map(|last| (&last.rule, &last.bound))
    }

    #[inline]
    pub(super) fn get(&mut self, fingerprint: u64) -> Option<&mut Known<Rule>> {
        self.book.get(fingerprint)
    }

    /// Returns what is known of a key, if it is of this generation.
    pub(super) fn get_of(&mut self, fingerprint: u64, generation: u64) -> Option<&mut Known<Rule>> {
        let (known, of) = self.book.get_with_generation(fingerprint)?;
        (of == generation).then_some(known)
    }

    /// Returns who decides a call.
    #[inline]
    pub(super) fn find(
        &mut self,
        fingerprint: u64,
        (asked, bound): ((&Ask<'_, Rule>, &Rule), &Bound),
        now: Timestamp,
        line: impl FnOnce() -> Arc<Line>,
    ) -> Found<'_, Known<Rule>> {
        let entry = || Known::new(asked, now, line());
        self.book.find(fingerprint, bound, now, entry)
    }

    /// Returns what is known of the key of an ask, from now on; `None` if there is no room.
    pub(super) fn get_or_add(
        &mut self,
        fingerprint: u64,
        asked: (&Ask<'_, Rule>, &Rule),
        now: Timestamp,
        line: impl FnOnce() -> Arc<Line>,
    ) -> Option<&mut Known<Rule>> {
        let entry = || Known::new(asked, now, line());
        let (known, _) = self.book.get_or_add(fingerprint, now, entry)?;
        Some(known)
    }

    /// Removes a key. Returns the units that the store may not know.
    pub(super) fn remove(&mut self, fingerprint: u64) -> u64 {
        let known = self.book.remove(fingerprint);
        known.map_or(0, |known| known.account.unsynced())
    }
}

impl<Rule: Syncable> Entry<Rule> for Known<Rule> {
    #[inline]
    fn account(&self) -> &Account<Rule> {
        &self.account
    }

    #[inline]
    fn account_mut(&mut self) -> &mut Account<Rule> {
        &mut self.account
    }

    fn is_settled(&self) -> bool {
        self.account.is_settled() && self.waiting.is_empty()
    }

    fn removed(&mut self, fingerprint: u64) {
        self.line.change(fingerprint, self.noted, Due::NEVER);
    }
}

impl<Rule: Syncable> Known<Rule> {
    #[cold]
    fn new((ask, rule): (&Ask<'_, Rule>, &Rule), now: Timestamp, line: Arc<Line>) -> Self {
        Self {
            place: Box::new((ask.policy().clone(), *ask.key())),
            account: Account::new(rule.clone(), now),
            waiting: Waiting::default(),
            line,
            noted: Due::NEVER,
        }
    }

    /// Does something with the account. Notes in the line if it is due at another instant than
    /// before.
    #[inline]
    pub(super) fn with<T>(
        &mut self,
        fingerprint: u64,
        change: impl FnOnce(&mut Account<Rule>) -> T,
    ) -> T {
        let result = change(&mut self.account);
        let at = self.account.due();
        let is_write = self.account.unsynced() > 0;
        if self.noted.at != at || self.noted.is_write != is_write {
            self.note(fingerprint, Due { at, is_write });
        }
        result
    }

    #[inline(never)]
    fn note(&mut self, fingerprint: u64, due: Due) {
        let before = std::mem::replace(&mut self.noted, due);
        if before.at < Timestamp::MAX || due.at < Timestamp::MAX {
            self.line.change(fingerprint, before, due);
        }
    }

    /// Notes that the line has taken it out, because it is due.
    pub(super) fn clear_due(&mut self, fingerprint: u64) {
        self.account.clear_due();
        self.note(fingerprint, Due::NEVER);
    }

    /// Moves it to another line, where it is due at once.
    pub(super) fn move_to(&mut self, line: Arc<Line>, fingerprint: u64) {
        self.removed(fingerprint);
        self.line = line;
        self.line.change(fingerprint, Due::NEVER, self.noted);
    }

    /// Waits for the store.
    pub(super) fn wait(&mut self) -> Answered {
        self.line.hurry.notify_one();
        self.waiting.wait()
    }
}

/// The keys of one [part of the store](crate::store::Backend::shard) that wait for it, found by
/// their fingerprints. One call to it is under way at a time.
#[derive(Default)]
pub(super) struct Line {
    agenda: Mutex<Agenda<u64>>,
    /// Wakes the task that calls the store.
    pub(super) wake: Notify,
    /// Told when a call waits for the store.
    pub(super) hurry: Notify,
    pub(super) task: OneTask,
    /// `true` from a failure to the next success.
    pub(super) is_down: AtomicBool,
}

impl Line {
    /// Notes that a key is due at another instant than before, or with something else.
    pub(super) fn change(&self, fingerprint: u64, before: Due, after: Due) {
        let is_first = {
            let mut agenda = self.agenda();
            let is_first = agenda.next().is_none_or(|next| after.at < next);
            agenda.change(fingerprint, before, after);
            is_first && after != Due::NEVER
        };
        if is_first {
            self.wake.notify_one();
        }
    }

    /// Takes out a key that is due.
    pub(super) fn take(&self, now: Timestamp) -> Option<(Timestamp, u64)> {
        self.agenda().take(now)
    }

    /// Returns when there is something to do.
    pub(super) fn next(&self) -> Option<Timestamp> {
        self.agenda().next()
    }

    /// Returns the number of keys that are due.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.agenda().len()
    }

    pub(super) fn is_down(&self) -> bool {
        self.is_down.load(Ordering::Relaxed)
    }

    fn agenda(&self) -> MutexGuard<'_, Agenda<u64>> {
        lock(&self.agenda)
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
        let accounts = Accounts::<TokenBucket>::new(1000, Some(1), Duration::from_secs(1));
        let (rule, policy, line) = (
            TokenBucket::per_second(10),
            Policy::new("api"),
            Arc::default(),
        );
        let now = Timestamp::from_nanos(1);
        let bound = SyncConfig::new().most_ahead(5).bound(&rule, Some(2));
        accounts.note_kind(crate::algorithm::Algorithm::state_kind(&rule));
        for n in 0..10_000u64 {
            let key = Key::from(n % 3);
            let ask = Ask::new(&policy, &rule, key, Cost::ONE);
            let fingerprint = accounts.fingerprint(&policy, &key, &rule);
            let mut shard = accounts.table.shard(fingerprint);
            let known = shard.get_or_add(fingerprint, (&ask, &rule), now, || Arc::clone(&line));
            known.unwrap().with(fingerprint, |account| {
                // It is due at once, and later.
                let _ = account.acquire(&rule, now, (Cost::ONE, false), &bound);
                account.failed(now, true, &bound);
            });
            assert!(line.len() <= 3, "{} entries of three keys", line.len());
            drop(shard);
            accounts.drop_key(&policy, &key);
        }
        assert_eq!(line.len(), 0);
    }
}
