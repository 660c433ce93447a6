//! The leases of all keys.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use super::{
    LeaseConfig, LeaseStats,
    keys::Keys,
    lease::{Asked, Tried, limit_as_written},
};
use crate::{
    algorithm::{Leasable, StateKind},
    decision::{Charge, Decision, Position},
    key::Key,
    lease::{Answer, Counts, Holder, Plan, Request},
    policy::Policy,
    random::{self, Random},
    store::{Ask, Error, Settlement, engine::Counter, local::Fingerprinter},
    time::Timestamp,
};

const SHARDS: usize = 64;
/// The leases of all keys, each found by its fingerprint.
pub(super) struct Book<Rule> {
    shards: Box<[Mutex<Shard<Rule>>]>,
    /// The most keys of a shard.
    most: usize,
    fingerprinter: Fingerprinter,
    /// For pauses. One for all keys, so that a seed determines all of them.
    random: Mutex<Random>,
    /// A mean of the last round trips in nanoseconds. It only determines how early units are asked for.
    round_trip: AtomicU64,
    /// `true` once the leases were given back: from then on the store decides each call.
    is_closed: AtomicBool,
    pub(super) crowded: Counter,
    pub(super) failed: Counter,
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
        }
    }
}

impl<Rule: Leasable> Book<Rule> {
    pub(super) fn new(keys: usize, seed: Option<u64>) -> Self {
        let shard = || {
            Mutex::new(Shard {
                keys: Keys::default(),
                counts: Counts::default(),
            })
        };
        Self {
            shards: (0..SHARDS).map(|_| shard()).collect(),
            most: keys.div_ceil(SHARDS),
            fingerprinter: seed.map_or_else(Fingerprinter::random, Fingerprinter::seeded),
            random: Mutex::new(Random::new(seed.unwrap_or_else(random::seed))),
            round_trip: AtomicU64::new(1_000_000),
            is_closed: AtomicBool::new(false),
            crowded: Counter::default(),
            failed: Counter::default(),
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

    fn plan(&self, hold: Duration) -> Plan {
        let round_trip = self.round_trip.load(Ordering::Relaxed);
        Plan {
            hold,
            round_trip: Duration::from_nanos(round_trip),
        }
    }

    /// Decides a call as far as that is possible without the store.
    ///
    /// # Errors
    ///
    /// When the rule cannot be leased.
    pub(super) fn acquire<C>(
        &self,
        ask: &Ask<'_, Rule>,
        now: Timestamp,
        is_again: bool,
        config: &LeaseConfig<C>,
    ) -> Result<Tried<Rule>, crate::Error> {
        let fingerprint = self.fingerprint(ask.policy(), ask.key());
        let mut shard = self.shard(fingerprint);
        let Shard { keys, counts } = &mut *shard;
        let is_open = !self.is_closed.load(Ordering::Acquire);
        let call = (now, is_again);
        // Known keys are looked up once.
        if is_open && let Some(lease) = keys.find(fingerprint, ask.rule()) {
            return Ok(lease.decide(ask, call, self.plan(lease.rule.hold), counts));
        }
        let new = match is_open {
            true => keys.lease(fingerprint, ask, (now, self.most), config, counts)?,
            false => None,
        };
        let Some(lease) = new else {
            self.crowded.add(1);
            return Ok(Tried::Ask(Box::new(Asked {
                held: config.held(ask.rule())?,
                request: Request::exactly(ask.cost(), now),
            })));
        };
        Ok(lease.decide(ask, call, self.plan(lease.rule.hold), counts))
    }

    /// Takes in the answer of the store to a call. Returns its decision.
    pub(super) fn answered(
        &self,
        ask: &Ask<'_, Rule>,
        asked: &Asked<Rule>,
        answer: Decision,
        now: Timestamp,
    ) -> Decision {
        self.take_in(
            ask,
            asked,
            (answer, now),
            |holder, answer, plan, random, counts| {
                holder.answered(now, &asked.request, answer, (plan, random), counts)
            },
        )
    }

    /// Takes in the answer of the store to a request that no call waits for.
    pub(super) fn prefetched(
        &self,
        ask: &Ask<'_, Rule>,
        asked: &Asked<Rule>,
        answer: Decision,
        now: Timestamp,
    ) {
        self.take_in(
            ask,
            asked,
            (answer, now),
            |holder, answer, plan, random, counts| {
                holder.prefetched(now, &asked.request, answer, (plan, random), counts);
            },
        );
    }

    fn take_in<T>(
        &self,
        ask: &Ask<'_, Rule>,
        asked: &Asked<Rule>,
        (answer, now): (Decision, Timestamp),
        take: impl FnOnce(&mut Holder, &Answer, &Plan, &mut Random, &mut Counts) -> T,
    ) -> T {
        self.note_round_trip(asked, now);
        let own = asked.held.for_key(&|| ask.key().digest());
        let held = own.as_ref().unwrap_or(&asked.held);
        let fingerprint = self.fingerprint(ask.policy(), ask.key());
        let mut shard = self.shard(fingerprint);
        let Shard { keys, counts } = &mut *shard;
        let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
        let random = &mut *random;
        counts.asked += 1;
        let Some(lease) = keys.find(fingerprint, ask.rule()) else {
            // The leases of the key are gone, so the units above the cost are lost.
            let (mut holder, plan) = (Holder::default(), self.plan(Duration::ZERO));
            let validity = held.validity(&answer, plan.hold);
            let limit = limit_as_written(ask.rule());
            let answer = Answer::new(answer, validity).shown_as(limit);
            let taken = take(&mut holder, &answer, &plan, random, counts);
            counts.lost += holder.left();
            return taken;
        };
        let validity = held.validity(&answer, lease.rule.hold);
        let answer = Answer::new(answer, validity).shown_as(lease.rule.limit);
        let plan = self.plan(lease.rule.hold);
        let holder = &mut lease.holder;
        let taken = take(holder, &answer, &plan, random, counts);
        lease.wake(&Ok(()));
        taken
    }

    /// Notes that a request has failed, or that it was not sent.
    pub(super) fn failed(&self, ask: &Ask<'_, Rule>, result: &Result<(), Error>) {
        self.failed.add(u64::from(result.is_err()));
        let fingerprint = self.fingerprint(ask.policy(), ask.key());
        if let Some(lease) = self.shard(fingerprint).keys.find(fingerprint, ask.rule()) {
            lease.holder.failed();
            lease.wake(result);
        }
    }

    /// Gives back the last units of a charge that a lease paid for.
    pub(super) fn give_back(
        &self,
        (policy, key, rule): (&Policy, &Key, &Rule),
        units: u64,
        position: Option<Position>,
        now: Timestamp,
    ) {
        let fingerprint = self.fingerprint(policy, key);
        let mut shard = self.shard(fingerprint);
        let Shard { keys, counts } = &mut *shard;
        match keys.find(fingerprint, rule) {
            Some(lease) => lease.holder.give_back(now, units, position, counts),
            None => {
                counts.spent = counts.spent.wrapping_sub(units);
                counts.lost += units;
            }
        }
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

    /// Takes out all leases, to be given back, and holds no more. Calls that wait go on.
    pub(super) fn close(&self, now: Timestamp) -> Vec<Leftover<Rule>> {
        self.is_closed.store(true, Ordering::Release);
        let mut all = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            let Shard { keys, counts } = &mut *shard;
            for mut lease in keys.of_key.drain().flat_map(|(_, leases)| leases) {
                let left = lease.holder.take_out(now, counts);
                all.extend(left.into_iter().map(|(charge, units)| Leftover {
                    place: lease.rest.place.clone(),
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

    /// Notes that this node could not be counted.
    pub(super) fn failed_to_count(&self) {
        self.failed.add(1);
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
                .map(|rule| rule.undershoot_bound(nodes));
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
