//! The accounts of all keys of this node.

use std::{
    hash::BuildHasherDefault,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::oneshot;

use super::{SyncConfig, line::Line};
use crate::{
    algorithm::{StateKind, Syncable},
    decision::Decision,
    fleet::{
        of_fingerprint::OfFingerprint,
        sync::{Account, Book, Bound, Due, Entry, Found},
    },
    key::Key,
    policy::Policy,
    store::{Ask, StoreError, local::Fingerprinter},
    time::Timestamp,
};

const SHARDS: usize = 64;
/// The most kinds of rules whose keys are found at a reset. More than a program has.
const MOST_KINDS: usize = 64;

/// The accounts of all keys of this node, each found by its fingerprint.
pub(super) struct Accounts<Rule: Syncable> {
    shards: Box<[Mutex<Shard<Rule>>]>,
    fingerprinter: Fingerprinter,
    kinds: Mutex<Vec<StateKind>>,
}

/// A part of the keys behind a lock.
pub(super) struct Shard<Rule: Syncable> {
    pub(super) book: Book<Rule, Known<Rule>, BuildHasherDefault<OfFingerprint>>,
    /// Keys that were ever added.
    added: u64,
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
    pub(super) waiting: Vec<oneshot::Sender<Result<(), StoreError>>>,
    pub(super) line: Arc<Line>,
    /// Another one for each time that a key is added: an answer that was asked for before a reset
    /// is none for the account afterwards.
    pub(super) generation: u64,
    /// When it is due, as the line knows it.
    noted: Due,
    /// When the line looks at it because it may be idle.
    noted_idle: Option<Timestamp>,
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
    pub(super) fn new(keys: usize, seed: Option<u64>) -> Self {
        let most = keys.div_ceil(SHARDS);
        let shard = || {
            Mutex::new(Shard {
                book: Book::new(most),
                added: 0,
                last_rule: None,
                counts: Counts::default(),
            })
        };
        Self {
            shards: (0..SHARDS).map(|_| shard()).collect(),
            fingerprinter: seed.map_or_else(Fingerprinter::random, Fingerprinter::seeded),
            kinds: Mutex::default(),
        }
    }

    #[inline]
    pub(super) fn fingerprint(&self, policy: &Policy, key: &Key, rule: &Rule) -> u64 {
        self.fingerprinter
            .fingerprint(policy, key, rule.state_kind())
    }

    /// Returns the index of the shard of a key.
    #[inline]
    pub(super) fn index(fingerprint: u64) -> usize {
        (fingerprint >> 32) as usize % SHARDS
    }

    #[inline]
    pub(super) fn shard(&self, index: usize) -> MutexGuard<'_, Shard<Rule>> {
        // Rules may panic under the lock, but leave the states valid.
        self.shards[index % SHARDS]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the shard of a key.
    #[inline]
    pub(super) fn shard_of(&self, fingerprint: u64) -> MutexGuard<'_, Shard<Rule>> {
        self.shard(Self::index(fingerprint))
    }

    /// Locks all shards, one after the other.
    pub(super) fn each(&self) -> impl Iterator<Item = MutexGuard<'_, Shard<Rule>>> {
        (0..SHARDS).map(|index| self.shard(index))
    }

    /// Notes that keys come under rules of a kind.
    pub(super) fn note_kind(&self, kind: StateKind) {
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        if !kinds.contains(&kind) && kinds.len() < MOST_KINDS {
            kinds.push(kind);
        }
    }

    /// Drops what is known of a key. Returns the units that the store may not know.
    pub(super) fn drop_key(&self, policy: &Policy, key: &Key) -> u64 {
        let mut dropped = 0;
        for fingerprint in self.fingerprints(policy, key) {
            // Calls that wait try again when their senders are gone.
            dropped += self.shard_of(fingerprint).remove(fingerprint);
        }
        dropped
    }

    /// Has the state of a key read anew before it is used, because it was reset in the store.
    pub(super) fn outdate(&self, policy: &Policy, key: &Key) {
        for fingerprint in self.fingerprints(policy, key) {
            if let Some(known) = self.shard_of(fingerprint).book.get(fingerprint) {
                known.account.outdate();
            }
        }
    }

    /// Returns the fingerprints of a key, one for each kind of rules.
    fn fingerprints(&self, policy: &Policy, key: &Key) -> Vec<u64> {
        let kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        let of_kind = |kind: &StateKind| self.fingerprinter.fingerprint(policy, key, *kind);
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

    /// Returns who decides a call.
    #[inline]
    pub(super) fn find(
        &mut self,
        fingerprint: u64,
        (asked, bound): ((&Ask<'_, Rule>, &Rule), &Bound),
        now: Timestamp,
        line: impl FnOnce() -> Arc<Line>,
    ) -> Found<'_, Known<Rule>> {
        let added = &mut self.added;
        self.book
            .find(fingerprint, bound, || Known::new(added, asked, now, line()))
    }

    /// Returns what is known of the key of an ask, from now on; `None` if there is no room.
    pub(super) fn get_or_add(
        &mut self,
        fingerprint: u64,
        asked: (&Ask<'_, Rule>, &Rule),
        now: Timestamp,
        line: impl FnOnce() -> Arc<Line>,
    ) -> Option<&mut Known<Rule>> {
        let added = &mut self.added;
        let entry = || Known::new(added, asked, now, line());
        let (known, _) = self.book.get_or_add(fingerprint, entry)?;
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

    fn removed(&mut self, fingerprint: u64) {
        self.line.change(fingerprint, self.noted, Due::NEVER);
        self.line.change_idle(fingerprint, self.noted_idle, None);
    }
}

impl<Rule: Syncable> Known<Rule> {
    #[cold]
    fn new(
        added: &mut u64,
        (ask, rule): (&Ask<'_, Rule>, &Rule),
        now: Timestamp,
        line: Arc<Line>,
    ) -> Self {
        *added += 1;
        Self {
            place: Box::new((ask.policy().clone(), *ask.key())),
            account: Account::new(rule.clone(), now),
            waiting: Vec::new(),
            line,
            generation: *added,
            noted: Due::NEVER,
            noted_idle: None,
        }
    }

    /// Does something with the account. Notes in the line if it is due at another instant than
    /// before, and when it may be idle.
    #[inline]
    pub(super) fn with<T>(
        &mut self,
        (fingerprint, idle): (u64, Duration),
        change: impl FnOnce(&mut Account<Rule>) -> T,
    ) -> T {
        let result = change(&mut self.account);
        let at = self.account.due();
        let is_write = self.account.unsynced() > 0;
        if self.noted.at != at || self.noted.is_write != is_write {
            self.note(fingerprint, Due { at, is_write });
        }
        if self.noted_idle.is_none() {
            self.note_idle(fingerprint, self.account.last_used().saturating_add(idle));
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

    /// Has the line look at it later.
    pub(super) fn note_idle(&mut self, fingerprint: u64, at: Timestamp) {
        let before = self.noted_idle.replace(at);
        self.line.change_idle(fingerprint, before, Some(at));
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
        self.line.change_idle(fingerprint, None, self.noted_idle);
    }

    /// Lets calls that wait go on.
    pub(super) fn wake(&mut self, result: &Result<(), StoreError>) {
        for waiting in self.waiting.drain(..) {
            let result = match result {
                Ok(()) => Ok(()),
                Err(error) => Err(error.duplicate()),
            };
            // A call that is gone needs no answer.
            let _ = waiting.send(result);
        }
    }

    /// Waits for the store.
    pub(super) fn wait(&mut self) -> oneshot::Receiver<Result<(), StoreError>> {
        let (sender, receiver) = oneshot::channel();
        if self.waiting.len() == self.waiting.capacity() {
            self.waiting.retain(|waiting| !waiting.is_closed());
        }
        self.waiting.push(sender);
        self.line.hurry.notify_one();
        receiver
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
        const IDLE: Duration = Duration::from_secs(1);
        let accounts = Accounts::<TokenBucket>::new(1000, Some(1));
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
            let mut shard = accounts.shard_of(fingerprint);
            let known = shard.get_or_add(fingerprint, (&ask, &rule), now, || Arc::clone(&line));
            known.unwrap().with((fingerprint, IDLE), |account| {
                // It is due at once, and later.
                let _ = account.acquire(&rule, now, (Cost::ONE, false), &bound);
                account.failed(now, true, &bound);
            });
            assert!(line.len() <= 6, "{} entries of three keys", line.len());
            drop(shard);
            accounts.drop_key(&policy, &key);
        }
        assert_eq!(line.len(), 0);
    }
}
