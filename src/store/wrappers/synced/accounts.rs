//! What this node knows of all keys.

use std::{
    collections::{HashMap, hash_map::Entry},
    hash::BuildHasherDefault,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::oneshot;

use super::{SyncConfig, line::Line};
use crate::{
    algorithm::{StateKind, Syncable},
    decision::Decision,
    key::Key,
    policy::Policy,
    store::{Ask, Error, local::Fingerprinter, wrappers::of_fingerprint::OfFingerprint},
    synced::{Account, Bound},
    time::Timestamp,
};

const SHARDS: usize = 64;
/// The most kinds of rules whose keys are found at a reset. More than a program has.
const MOST_KINDS: usize = 64;

/// What this node knows of all keys, each found by its fingerprint.
pub(super) struct Accounts<Rule: Syncable> {
    shards: Box<[Mutex<Shard<Rule>>]>,
    fingerprinter: Fingerprinter,
    kinds: Mutex<Vec<StateKind>>,
}

/// A part of the keys behind a lock.
pub(super) struct Shard<Rule: Syncable> {
    known: HashMap<u64, Known<Rule>, BuildHasherDefault<OfFingerprint>>,
    last_rule: Option<LastRule<Rule>>,
    most: usize,
    pub(super) counts: Counts,
}

/// Calls that were decided here.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) admitted: u64,
    pub(super) refused: u64,
    pub(super) cut_off: u64,
}

/// What this node knows of a key under rules of one kind.
pub(super) struct Known<Rule: Syncable> {
    pub(super) place: Box<(Policy, Key)>,
    pub(super) account: Account<Rule>,
    /// Calls that wait for the store.
    pub(super) waiting: Vec<oneshot::Sender<Result<(), Error>>>,
    pub(super) line: Arc<Line>,
    /// `true` if the line looks at it once it may be idle.
    pub(super) is_noted_idle: bool,
}

/// The rule of the last call, and what a node may do alone under it. Most keys come under few rules.
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
                known: HashMap::default(),
                last_rule: None,
                most,
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
        let kinds = self
            .kinds
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let mut dropped = 0;
        for kind in kinds {
            let fingerprint = self.fingerprinter.fingerprint(policy, key, kind);
            // Calls that wait try again when their senders are gone.
            let known = self.shard_of(fingerprint).known.remove(&fingerprint);
            dropped += known.map_or(0, |known| known.account.unsynced());
        }
        dropped
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
            is_syncable: config.is_exact() || rule.check_sync().is_ok(),
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
        self.known.get_mut(&fingerprint)
    }

    /// Returns what is known of the key of an ask, from now on; `None` if there is no room.
    pub(super) fn get_or_add(
        &mut self,
        fingerprint: u64,
        (ask, rule): (&Ask<'_, Rule>, &Rule),
        now: Timestamp,
        line: impl FnOnce() -> Arc<Line>,
    ) -> Option<&mut Known<Rule>> {
        let is_full = self.known.len() >= self.most;
        match self.known.entry(fingerprint) {
            Entry::Occupied(known) => Some(known.into_mut()),
            Entry::Vacant(_) if is_full => None,
            Entry::Vacant(place) => Some(place.insert(Known {
                place: Box::new((ask.policy().clone(), *ask.key())),
                account: Account::new(rule.clone(), now),
                waiting: Vec::new(),
                line: line(),
                is_noted_idle: false,
            })),
        }
    }

    pub(super) fn remove(&mut self, fingerprint: u64) {
        self.known.remove(&fingerprint);
    }

    pub(super) fn all(&self) -> impl ExactSizeIterator<Item = (&u64, &Known<Rule>)> {
        self.known.iter()
    }

    pub(super) fn all_mut(&mut self) -> impl Iterator<Item = (&u64, &mut Known<Rule>)> {
        self.known.iter_mut()
    }
}

impl<Rule: Syncable> Known<Rule> {
    /// Does something with the account. Notes in the line if it is due earlier than before, or if it may be idle.
    #[inline]
    pub(super) fn with<T>(
        &mut self,
        (fingerprint, idle): (u64, Duration),
        change: impl FnOnce(&mut Account<Rule>) -> T,
    ) -> T {
        let before = self.account.due();
        let result = change(&mut self.account);
        let due = self.account.due();
        if due < before {
            self.line
                .note(fingerprint, due, self.account.unsynced() > 0);
        }
        if !self.is_noted_idle {
            self.is_noted_idle = true;
            let at = self.account.last_used().saturating_add(idle);
            self.line.note_idle(fingerprint, at);
        }
        result
    }

    /// Lets calls that wait go on.
    pub(super) fn wake(&mut self, result: &Result<(), Error>) {
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
    pub(super) fn wait(&mut self) -> oneshot::Receiver<Result<(), Error>> {
        let (sender, receiver) = oneshot::channel();
        if self.waiting.len() == self.waiting.capacity() {
            self.waiting.retain(|waiting| !waiting.is_closed());
        }
        self.waiting.push(sender);
        self.line.hurry.notify_one();
        receiver
    }
}
