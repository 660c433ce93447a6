//! The leases of all keys.
//!
//! The leases of a key are behind one of 64 locks, because to spend from a lease changes several
//! words. A decision leaves the lock as its parts, and is put together outside.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use super::{
    LeaseConfig, LeaseStats,
    keys::{Keys, LastRule},
    lease::{Asked, Lease, Tried},
    recent_calls::Former,
};
use crate::{
    algorithm::{Leasable, StateKind, Validity},
    decision::{Charge, Decision, Position},
    fleet::{
        lease::{Answer, Counts, Holder, Plan, Request, Surroundings},
        one_task::OneTask,
    },
    key::Key,
    policy::Policy,
    random::{self, Random},
    stats::Counter,
    store::{Ask, Settlement, StoreError, local::Fingerprinter},
    time::Timestamp,
};

const SHARDS: usize = 64;

/// The holds for which an idle key stays while there is room, because a key that is known asks for
/// units ahead with its first call.
const IDLE_HOLDS: u32 = 2;

/// The most keys of a shard that are looked at while it is locked, because they may be idle.
const MOST_LOOKS: usize = 32;

/// The leases of all keys, each found by its fingerprint.
pub(super) struct Book<Rule> {
    shards: Box<[Mutex<Shard<Rule>>]>,
    /// The most keys of a shard.
    most: usize,
    fingerprinter: Fingerprinter,
    last_rule: Mutex<LastRule<Rule>>,
    /// For pauses. One for all keys, so that a seed determines all of them.
    random: Mutex<Random>,
    /// A mean of the last round trips in nanoseconds. It only determines how early units are asked
    /// for.
    round_trip: AtomicU64,
    /// `true` once the leases were given back: from then on the store decides each call.
    is_closed: AtomicBool,
    /// Forgets keys. It is wanted once there is a key.
    pub(super) sweeping: OneTask,
    pub(super) crowded: Counter,
    pub(super) failed: Counter,
    /// Corrections that gave nothing back, or may not have.
    pub(super) unsettled: Counter,
}

struct Shard<Rule> {
    keys: Keys<Rule>,
    counts: Counts,
}

/// The charge of a grant, and what is left of it.
pub(super) struct Leftover<Rule> {
    pub(super) place: (Policy, Key),
    pub(super) held: Rule,
    pub(super) charge: Charge,
    pub(super) units: u64,
}

impl<Rule> Leftover<Rule> {
    pub(super) fn settlement(&self) -> Settlement<'_, Rule> {
        let (policy, key) = &self.place;
        Settlement {
            policy,
            rule: &self.held,
            key: *key,
            actual: self.charge.cost.saturating_sub(self.units),
            charge: self.charge.duplicate(),
            is_grant: false,
        }
    }
}

impl<Rule: Leasable> Book<Rule> {
    pub(super) fn new(keys: usize, seed: Option<u64>) -> Self {
        let most = keys.div_ceil(SHARDS);
        let shard = || {
            Mutex::new(Shard {
                keys: Keys::new(most),
                counts: Counts::default(),
            })
        };
        Self {
            shards: (0..SHARDS).map(|_| shard()).collect(),
            most,
            fingerprinter: seed.map_or_else(Fingerprinter::random, Fingerprinter::seeded),
            last_rule: Mutex::new(None),
            random: Mutex::new(Random::new(seed.unwrap_or_else(random::seed))),
            round_trip: AtomicU64::new(1_000_000),
            is_closed: AtomicBool::new(false),
            sweeping: OneTask::default(),
            crowded: Counter::default(),
            failed: Counter::default(),
            unsettled: Counter::default(),
        }
    }

    fn fingerprint(&self, policy: &Policy, key: &Key) -> u64 {
        self.fingerprinter
            .fingerprint(policy, key, StateKind::default())
    }

    fn shard(&self, fingerprint: u64) -> MutexGuard<'_, Shard<Rule>> {
        let shard = &self.shards[(fingerprint >> 32) as usize % SHARDS];
        // Comparisons of rules may panic under the lock, but leave the leases valid.
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_open(&self) -> bool {
        !self.is_closed.load(Ordering::Acquire)
    }

    /// Decides a call as far as that is possible without the store.
    ///
    /// # Errors
    ///
    /// When the rule cannot be leased.
    #[inline]
    pub(super) fn acquire<C>(
        &self,
        ask: &Ask<'_, Rule>,
        now: Timestamp,
        is_again: bool,
        config: &LeaseConfig<C>,
    ) -> Result<Tried<Rule>, crate::Error> {
        let fingerprint = self.fingerprint(ask.policy(), ask.key());
        let (call, round_trip) = ((now, is_again), self.round_trip.load(Ordering::Relaxed));
        let wanted = (fingerprint, ask.cost());
        let mut shard = self.shard(fingerprint);
        let Shard { keys, counts } = &mut *shard;
        let is_open = self.is_open();
        // Known keys are looked up once.
        if is_open && let Some(lease) = keys.find(fingerprint, ask.rule()) {
            return Ok(lease.decide(wanted, call, round_trip, counts));
        }
        let rule = keys.rule(ask.rule(), &self.last_rule, config)?;
        let request = if is_open {
            // A key that is called once in a hold takes no memory for leases.
            let holder = match keys.recent_calls.note(fingerprint, now, rule.hold) {
                Former::None => None,
                Former::Answered => Some(Holder::default()),
                Former::UnderWay => Some(Holder::during_the_first()),
            };
            match holder {
                None => Request::first(ask.cost(), now),
                Some(holder) => {
                    let room = (now, self.most);
                    if let Some(lease) = keys.lease(fingerprint, &rule, holder, room, counts) {
                        self.sweeping.want();
                        return Ok(lease.decide(wanted, call, round_trip, counts));
                    }
                    self.crowded.add(1);
                    Request::beside(ask.cost(), now)
                }
            }
        } else {
            Request::beside(ask.cost(), now)
        };
        Ok(Tried::Ask(Asked {
            fingerprint,
            rule,
            request,
        }))
    }

    /// Returns the request of a call for its own cost, beside one that may be under way.
    ///
    /// # Errors
    ///
    /// When the rule cannot be leased.
    pub(super) fn beside<C>(
        &self,
        ask: &Ask<'_, Rule>,
        now: Timestamp,
        config: &LeaseConfig<C>,
    ) -> Result<Asked<Rule>, crate::Error> {
        let fingerprint = self.fingerprint(ask.policy(), ask.key());
        let mut shard = self.shard(fingerprint);
        Ok(Asked {
            fingerprint,
            rule: shard.keys.rule(ask.rule(), &self.last_rule, config)?,
            request: Request::beside(ask.cost(), now),
        })
    }

    /// Takes in the answer of the store to a request. Returns the decision of the call that waits
    /// for it.
    ///
    /// Units above the cost of the call are kept for the key.
    pub(super) fn answered(
        &self,
        asked: &Asked<Rule>,
        (policy, key): (&Policy, &Key),
        answer: Decision,
        now: Timestamp,
    ) -> Decision {
        self.note_round_trip(asked, now);
        let Asked { rule, request, .. } = asked;
        let own = rule.held.for_key(&|| key.digest());
        let held = own.as_ref().unwrap_or(&rule.held);
        let validity = held.validity(&answer, rule.hold);
        let mut shard = self.shard(asked.fingerprint);
        let Shard { keys, counts } = &mut *shard;
        let has_room = self.is_open() && keys.of_key.len() < self.most;
        let is_known = keys.find_asked(asked).is_some();
        // Units that nobody can keep end at once, and what such a call gives back goes to the
        // store.
        let answer = Answer::new(
            answer,
            match has_room || is_known {
                true => validity,
                false => Validity::together(Duration::ZERO),
            },
        );
        counts.asked += 1;
        let mut surroundings = Surroundings {
            now,
            plan: Plan {
                terms: &rule.terms,
                round_trip: self.round_trip.load(Ordering::Relaxed),
            },
            draw: &mut |most| {
                let random = self.random.lock();
                random.unwrap_or_else(PoisonError::into_inner).up_to(most)
            },
            counts,
        };
        if request.is_first() {
            keys.first_ended(asked, &Ok(()));
        }
        let Some(lease) = keys.find_asked(asked) else {
            // The leases of the key are gone, so the units above the cost are lost.
            let mut holder = Holder::default();
            let decision = holder.answered(request, &answer, &mut surroundings);
            counts.lost += holder.left();
            return decision;
        };
        let decision = lease.holder.answered(request, &answer, &mut surroundings);
        if lease.holder.left() > 0 {
            lease.set_place(policy, key);
        }
        lease.wake(&Ok(()));
        decision
    }

    /// Notes that a request has failed, or that it was not sent.
    pub(super) fn failed(&self, asked: &Asked<Rule>, result: &Result<(), StoreError>) {
        self.failed.add(u64::from(result.is_err()));
        let keys = &mut self.shard(asked.fingerprint).keys;
        if asked.request.is_first() {
            keys.first_ended(asked, result);
        } else if let Some(lease) = keys.find_asked(asked) {
            lease.holder.ended(&asked.request);
            lease.wake(result);
        }
    }

    /// Gives back the last units of a charge to the leases of this node, which may begin by that.
    pub(super) fn give_back<C>(
        &self,
        (policy, key, rule): (&Policy, &Key, &Rule),
        units: u64,
        position: Option<Position>,
        now: Timestamp,
        config: &LeaseConfig<C>,
    ) {
        if units == 0 {
            return;
        }
        let fingerprint = self.fingerprint(policy, key);
        let mut shard = self.shard(fingerprint);
        let Shard { keys, counts } = &mut *shard;
        if keys.find(fingerprint, rule).is_none()
            && self.is_open()
            && let Ok(rule) = keys.rule(rule, &self.last_rule, config)
        {
            let room = (now, self.most);
            let lease = keys.lease(fingerprint, &rule, Holder::default(), room, counts);
            if lease.is_some() {
                self.sweeping.want();
            }
        }
        let lost = match keys.find(fingerprint, rule) {
            Some(Lease { rule, holder, .. }) => {
                holder.give_back(now, units, position, &rule.terms, counts)
            }
            None => {
                counts.spent = counts.spent.wrapping_sub(units);
                counts.lost += units;
                units
            }
        };
        self.unsettled.add(u64::from(lost > 0));
    }

    /// Takes more units for a charge. Returns how many are lacking.
    pub(super) fn take_by_force(
        &self,
        (policy, key, rule): (&Policy, &Key, &Rule),
        units: u64,
        now: Timestamp,
    ) -> u64 {
        let fingerprint = self.fingerprint(policy, key);
        let mut shard = self.shard(fingerprint);
        let Shard { keys, counts } = &mut *shard;
        match keys.find(fingerprint, rule) {
            Some(lease) => lease.holder.take_by_force(now, units, counts),
            None => units,
        }
    }

    /// Forgets what the store said about a key, whose state was changed otherwise.
    pub(super) fn forget_answers(&self, policy: &Policy, key: &Key) {
        let fingerprint = self.fingerprint(policy, key);
        if let Some(leases) = self.shard(fingerprint).keys.of_key.get_mut(&fingerprint) {
            for lease in leases {
                lease.holder.forget_answers();
            }
        }
    }

    /// Drops the leases of a key.
    pub(super) fn drop_leases(&self, policy: &Policy, key: &Key, now: Timestamp) {
        let fingerprint = self.fingerprint(policy, key);
        let mut shard = self.shard(fingerprint);
        let Shard { keys, counts } = &mut *shard;
        for lease in keys.of_key.get_mut(&fingerprint).into_iter().flatten() {
            let left = lease.holder.clear(now, counts);
            counts.lost += left;
            lease.holder.forget_answers();
        }
    }

    /// Forgets some keys whose units have ended. Returns the instant at which the next one is to be
    /// looked at; `None` if there are no keys.
    pub(super) fn forget_idle(&self, now: Timestamp) -> Option<Timestamp> {
        let forget = |shard: &Mutex<Shard<Rule>>| {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            let Shard { keys, counts } = &mut *shard;
            keys.forget_idle(now, IDLE_HOLDS, MOST_LOOKS, counts);
            keys.next_look()
        };
        self.shards.iter().filter_map(forget).min()
    }

    /// Takes out all leases, to be given back, and holds no more. Calls that wait go on.
    pub(super) fn close(&self, now: Timestamp) -> Vec<Leftover<Rule>> {
        self.is_closed.store(true, Ordering::Release);
        let mut all = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            let Shard { keys, counts } = &mut *shard;
            for mut lease in keys.take_all() {
                let left = lease.holder.take_out(now, counts);
                let Some(place) = lease.place() else { continue };
                all.extend(left.into_iter().map(|(charge, units)| Leftover {
                    place: place.clone(),
                    held: lease.rule.held.clone(),
                    charge,
                    units,
                }));
            }
        }
        all
    }

    /// Notes that units of a lease that was taken out are in the store again.
    pub(super) fn returned(&self, units: u64) {
        let counts = &mut self.shard(0).counts;
        counts.returned += units;
        counts.lost = counts.lost.wrapping_sub(units);
    }

    /// Returns the counters, and the bound with so many nodes if that is known.
    pub(super) fn stats(&self, nodes: Option<u64>) -> LeaseStats {
        let (mut counts, mut left, mut keys) = (Counts::default(), 0, 0);
        let mut undershoot_bound = 0;
        for shard in &self.shards {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            counts.add(&shard.counts);
            keys += shard.keys.of_key.len() as u64;
            let bound = shard
                .keys
                .last_rule
                .as_deref()
                .map(|rule| rule.terms.undershoot_bound(nodes));
            undershoot_bound = undershoot_bound.max(bound.unwrap_or(0));
            let leases = shard.keys.of_key.values().flatten();
            left += leases.map(|lease| lease.holder.left()).sum::<u64>();
        }
        LeaseStats {
            asked: counts.asked,
            from_leases: counts.from_leases,
            refused_here: counts.refused_here,
            crowded: self.crowded.get(),
            granted: counts.granted,
            spent: counts.spent,
            left,
            expired: counts.expired,
            returned: counts.returned,
            lost: counts.lost,
            failed: self.failed.get(),
            keys,
            undershoot_bound,
            ..LeaseStats::default()
        }
    }

    fn note_round_trip(&self, asked: &Asked<Rule>, now: Timestamp) {
        let took = now.saturating_since(asked.request.sent_at).as_nanos();
        let took = u64::try_from(took).unwrap_or(u64::MAX);
        let mean = self.round_trip.load(Ordering::Relaxed);
        self.round_trip
            .store(mean - mean / 8 + took / 8, Ordering::Relaxed);
    }
}
