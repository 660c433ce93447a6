//! The leases of each key.

use std::{
    collections::{HashMap, VecDeque},
    hash::BuildHasherDefault,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use smallvec::SmallVec;

use super::{
    LeaseConfig,
    lease::{Asked, Lease, LeasedRule},
    recent_calls::RecentCalls,
};
use crate::{
    algorithm::Leasable,
    fleet::{
        lease::{Counts, Holder},
        of_fingerprint::OfFingerprint,
    },
    store::StoreError,
    time::Timestamp,
};

/// The most rules of a key that have leases beside each other.
const MOST_RULES: usize = 4;
/// A key is looked at after its hold, because it may be idle, or after this time if that is
/// shorter.
const LOOK_AFTER: Duration = Duration::from_secs(10);
/// The most keys that a new one has looked at, so that its call takes no longer the more keys there
/// are.
const LOOKS: usize = 8;

/// The leases of each key of a shard.
pub(super) struct Keys<Rule> {
    pub(super) of_key: HashMap<u64, SmallVec<[Lease<Rule>; 1]>, BuildHasherDefault<OfFingerprint>>,
    /// That of the last new key, because most keys come under few rules.
    pub(super) last_rule: LastRule<Rule>,
    pub(super) recent_calls: RecentCalls,
    /// Each key once, by the instants at which they are looked at, the earliest first.
    looks: VecDeque<(Timestamp, u64)>,
}

/// The last rule of a new key.
pub(super) type LastRule<Rule> = Option<Arc<LeasedRule<Rule>>>;

impl<Rule: Leasable> Keys<Rule> {
    /// Leaves room for so many keys.
    pub(super) fn new(most: usize) -> Self {
        Self {
            of_key: HashMap::default(),
            last_rule: None,
            recent_calls: RecentCalls::new(most),
            looks: VecDeque::new(),
        }
    }

    #[inline]
    pub(super) fn find(&mut self, fingerprint: u64, rule: &Rule) -> Option<&mut Lease<Rule>> {
        let leases = self.of_key.get_mut(&fingerprint)?;
        leases.iter_mut().find(|lease| lease.rule.written == *rule)
    }

    /// Finds the leases for which a request was made.
    pub(super) fn find_asked(&mut self, asked: &Asked<Rule>) -> Option<&mut Lease<Rule>> {
        let is_asked = |lease: &&mut Lease<Rule>| {
            Arc::ptr_eq(&lease.rule, &asked.rule) || lease.rule.written == asked.rule.written
        };
        let leases = self.of_key.get_mut(&asked.fingerprint)?;
        leases.iter_mut().find(is_asked)
    }

    /// Returns a rule with all that its leases share. All shards take it from `last`, so that it
    /// takes one place in the cache.
    ///
    /// # Errors
    ///
    /// When the rule cannot be leased.
    pub(super) fn rule<C>(
        &mut self,
        rule: &Rule,
        last: &Mutex<LastRule<Rule>>,
        config: &LeaseConfig<C>,
    ) -> Result<Arc<LeasedRule<Rule>>, crate::Error> {
        let is_same = |last: &&Arc<LeasedRule<Rule>>| last.written == *rule;
        if let Some(own) = self.last_rule.as_ref().filter(is_same) {
            return Ok(Arc::clone(own));
        }
        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
        let leased = match last.as_ref().filter(is_same) {
            Some(leased) => Arc::clone(leased),
            None => Arc::clone(last.insert(Arc::new(LeasedRule::new(rule, config)?))),
        };
        Ok(Arc::clone(self.last_rule.insert(leased)))
    }

    /// Returns new leases of a key under a rule; `None` if there is no room for the key.
    pub(super) fn lease(
        &mut self,
        fingerprint: u64,
        rule: &Arc<LeasedRule<Rule>>,
        holder: Holder,
        (now, most): (Timestamp, usize),
        counts: &mut Counts,
    ) -> Option<&mut Lease<Rule>> {
        if !self.of_key.contains_key(&fingerprint) {
            self.forget_idle(now, 0, LOOKS, counts);
            if self.of_key.len() >= most {
                return None;
            }
            self.looks.push_back((look_at(now, rule.hold), fingerprint));
        }
        let leases = self.of_key.entry(fingerprint).or_default();
        if leases.len() >= MOST_RULES {
            counts.lost += leases.remove(0).holder.left();
        }
        leases.push(Lease::new(Arc::clone(rule), holder));
        leases.last_mut()
    }

    /// Notes that the first request of a key is not under way any more.
    pub(super) fn first_ended(&mut self, asked: &Asked<Rule>, result: &Result<(), StoreError>) {
        self.recent_calls.ended(asked.fingerprint);
        // Leases of any rule may have begun meanwhile.
        for lease in self
            .of_key
            .get_mut(&asked.fingerprint)
            .into_iter()
            .flatten()
        {
            lease.holder.ended(&asked.request);
            lease.wake(result);
        }
    }

    /// Looks at so many keys at most, and forgets those that have been idle for so many holds.
    pub(super) fn forget_idle(
        &mut self,
        now: Timestamp,
        holds: u32,
        most: usize,
        counts: &mut Counts,
    ) {
        for _ in 0..most {
            let due = self.looks.front().filter(|(at, _)| *at <= now);
            let Some((_, fingerprint)) = due.copied() else {
                return;
            };
            self.looks.pop_front();
            let Some(leases) = self.of_key.get_mut(&fingerprint) else {
                continue;
            };
            leases.retain(|lease| {
                let stays = lease.rule.hold.min(LOOK_AFTER) * holds;
                let since = now.saturating_sub(stays);
                let is_idle = lease.holder.is_idle(since, lease.rule.terms.hold);
                if is_idle {
                    counts.expired += lease.holder.left();
                }
                !is_idle
            });
            match leases.first() {
                Some(lease) => {
                    let again = look_at(now, lease.rule.hold);
                    self.looks.push_back((again, fingerprint));
                }
                None => self.forget(fingerprint),
            }
        }
    }

    /// Returns the instant at which the next key is to be looked at; `None` if there are no keys.
    pub(super) fn next_look(&self) -> Option<Timestamp> {
        self.looks.front().map(|(at, _)| *at)
    }

    /// Takes out the leases of all keys.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = Lease<Rule>> {
        self.looks = VecDeque::new();
        std::mem::take(&mut self.of_key).into_values().flatten()
    }

    /// Forgets a key, and returns memory when most keys are gone.
    fn forget(&mut self, fingerprint: u64) {
        self.of_key.remove(&fingerprint);
        if self.of_key.len() < self.of_key.capacity() / 8 {
            let left = 2 * self.of_key.len();
            self.of_key.shrink_to(left);
            self.looks.shrink_to(left);
        }
    }
}

fn look_at(now: Timestamp, hold: Duration) -> Timestamp {
    now.saturating_add(hold.min(LOOK_AFTER))
}
