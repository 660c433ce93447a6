//! The leases of all keys.
//!
//! The leases of a key are behind the lock of its shard, because to spend from a lease changes
//! several words. A decision leaves the lock as its parts, and is put together outside.
//!
//! A key that has been idle for less than two lease durations stays: it asks ahead with its next
//! call, and without that, seldom called nodes asked the store for 6 % more calls
//! (`figures/fleet.md`).

use std::{
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::sync::oneshot::error::TryRecvError;

use super::lease::{KeyLeases, Lease, LeaseOutcome, LeaseRequest, LeasedRule, RecentCalls};
use crate::{
    algorithm::{Leasable, StateKind, Validity},
    decision::{Charge, Cost, Decision, Position},
    fleet::{
        LeaseConfig, LeaseStats,
        keys::{Answered, KeyTable, Keys, LOOKS_OF_CALL, LOOKS_OF_ROUND},
        lease::{Answer, LeaseState, Link, Request},
        nodes::Nodes,
        tasks::{OneTask, Sweep},
    },
    key::Key,
    locks::lock,
    policy::Policy,
    random::{self, Random},
    stats::Counter,
    store::{Ask, Settlement, StoreError},
    time::Timestamp,
};

/// The lease durations for which an idle key stays while there is room.
const IDLE_DURATIONS: u32 = 2;
/// The most rules of a key that have leases beside each other.
const MOST_RULES: usize = 4;
/// A key is looked at after its lease duration, because it may be idle, or after this time if that
/// is shorter.
const LOOK_AFTER: Duration = Duration::from_secs(10);

/// The leases of all keys, each found by its fingerprint.
pub(super) struct Leases<Rule> {
    pub(super) table: KeyTable<LeaseShard<Rule>>,
    last_rule: Mutex<LastRule<Rule>>,
    /// For pauses. One for all keys, so that a seed determines all of them.
    random: Mutex<Random>,
    /// A mean of the last round trips in nanoseconds. It only determines how early units are asked
    /// for.
    round_trip: AtomicU64,
    /// By how much the clock of the store that answered last is ahead of this node's, modulo 2⁶⁴.
    store_is_ahead: AtomicU64,
    /// `true` once the leases were returned: from then on the store decides each call.
    is_closed: AtomicBool,
    pub(super) failed: Counter,
    /// Corrections that gave nothing back, or may not have.
    pub(super) unsettled: Counter,
}

/// The leases of the keys of a shard.
pub(super) struct LeaseShard<Rule> {
    keys: Keys<KeyLeases<Rule>>,
    last_rule: LastRule<Rule>,
    recent_calls: RecentCalls,
    /// Changes of keys by settlements in the store.
    changes: u64,
    counts: LeaseStats,
}

/// The rule of the last new key, because most keys come under few rules. All shards take it from
/// one place, so that it takes one place in the cache.
type LastRule<Rule> = Option<Arc<LeasedRule<Rule>>>;

/// The charge of a grant, and what is left of it.
pub(super) struct Leftover<Rule> {
    pub(super) owner: (Policy, Key),
    pub(super) tightened: Rule,
    pub(super) charge: Charge,
    pub(super) units: u64,
}

impl<Rule> Leftover<Rule> {
    pub(super) fn settlement(&self) -> Settlement<'_, Rule> {
        let (policy, key) = &self.owner;
        Settlement {
            policy,
            rule: &self.tightened,
            key: *key,
            actual: self.charge.cost.saturating_sub(self.units),
            charge: self.charge.duplicate(),
            is_grant: false,
        }
    }
}

impl<Rule: Leasable> Leases<Rule> {
    pub(super) fn new(keys: usize, seed: Option<u64>) -> Self {
        let shard = |most| LeaseShard {
            keys: Keys::new(most),
            last_rule: None,
            recent_calls: RecentCalls::new(most),
            changes: 0,
            counts: LeaseStats::default(),
        };
        Self {
            table: KeyTable::new(keys, seed, shard),
            last_rule: Mutex::default(),
            random: Mutex::new(Random::new(seed.unwrap_or_else(random::seed))),
            round_trip: AtomicU64::new(1_000_000),
            store_is_ahead: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
            failed: Counter::default(),
            unsettled: Counter::default(),
        }
    }

    fn fingerprint(&self, policy: &Policy, key: &Key) -> u64 {
        self.table.fingerprint(policy, key, StateKind::default())
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
    ) -> Result<LeaseOutcome<Rule>, crate::Error> {
        let fingerprint = self.fingerprint(ask.policy(), ask.key());
        let (call, link) = ((ask.cost(), now, is_again), self.link());
        let mut shard = self.table.shard(fingerprint);
        let (is_open, change) = (self.is_open(), shard.changes);
        // Known keys are looked up once.
        if is_open && let Some((lease, generation, counts)) = shard.find(fingerprint, ask.rule()) {
            let found = (fingerprint, generation, change);
            return Ok(lease.decide(found, call, link, counts));
        }
        let rule = shard.rule(ask.rule(), &self.last_rule, config)?;
        // A key that is called once in a lease duration takes no memory for leases.
        let former = is_open.then(|| shard.recent_calls.note(fingerprint, now, rule.duration));
        let is_first = matches!(former, Some(None));
        if let Some(Some(state)) = former {
            if let Some((lease, generation, counts)) = shard.lease(fingerprint, &rule, state, now) {
                self.table.sweeping.want();
                let found = (fingerprint, generation, change);
                return Ok(lease.decide(found, call, link, counts));
            }
            shard.counts.over_capacity += 1;
        }
        let request = match is_first {
            true => Request::first(ask.cost(), now),
            false => Request::beside(ask.cost(), now),
        };
        let asked = shard.asked(fingerprint, rule, request);
        Ok(LeaseOutcome::Ask(asked))
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
    ) -> Result<LeaseRequest<Rule>, crate::Error> {
        let fingerprint = self.fingerprint(ask.policy(), ask.key());
        let mut shard = self.table.shard(fingerprint);
        let rule = shard.rule(ask.rule(), &self.last_rule, config)?;
        Ok(shard.asked(fingerprint, rule, Request::beside(ask.cost(), now)))
    }

    /// Takes in the answer of the store to a request. Returns the decision of the call that waits
    /// for it.
    ///
    /// Units above the cost of the call are kept for the key.
    pub(super) fn answered(
        &self,
        asked: &LeaseRequest<Rule>,
        (policy, key): (&Policy, &Key),
        answer: Decision,
        now: Timestamp,
    ) -> Decision {
        self.note_link(asked, &answer, now);
        let LeaseRequest { rule, request, .. } = asked;
        let own = rule.tightened.for_key(&|| key.digest());
        let tightened = own.as_ref().unwrap_or(&rule.tightened);
        let validity = tightened.validity(&answer, rule.duration);
        let mut shard = self.table.shard(asked.fingerprint);
        let has_room = self.is_open() && !shard.keys.is_full();
        let is_known = asked.find(&mut shard.keys).is_some();
        if request.is_first() {
            shard.first_ended(asked, &Ok(()));
        }
        let LeaseShard { keys, counts, .. } = &mut *shard;
        counts.asked += 1;
        let mut answer = Answer {
            decision: answer,
            // Units that nobody can keep end at once, and what such a call refunds goes to the
            // store.
            validity: match has_room || is_known {
                true => validity,
                false => Validity::together(Duration::ZERO),
            },
            is_outdated: false,
        };
        let with = (now, &rule.terms);
        let draw = &mut |most| lock(&self.random).up_to(most);
        let Some(lease) = asked.find(keys) else {
            // The leases of the key are gone, so the units above the cost are lost.
            let mut state = LeaseState::default();
            let decision = state.answered(request, &answer, with, draw, counts);
            counts.lost += state.left();
            return decision;
        };
        answer.is_outdated = lease.change > asked.change;
        let decision = lease.state.answered(request, &answer, with, draw, counts);
        if lease.state.left() > 0 {
            let rest = lease.rest.get_or_insert_default();
            rest.owner.get_or_insert_with(|| (policy.clone(), *key));
        }
        lease.wake(&Ok(()));
        decision
    }

    /// Notes that a request has failed, or that it was not sent.
    pub(super) fn ended(&self, asked: &LeaseRequest<Rule>, result: &Result<(), StoreError>) {
        let mut shard = self.table.shard(asked.fingerprint);
        if asked.request.is_first() {
            shard.first_ended(asked, result);
        } else if let Some(lease) = asked.find(&mut shard.keys) {
            lease.state.ended(&asked.request);
            lease.wake(result);
        }
    }

    /// Has the calls of a key wait no longer for the request that is under way, unless its answer
    /// has come meanwhile: one of them asks again. Returns `true` if the answer has come.
    pub(super) fn overdue(
        &self,
        ask: &Ask<'_, Rule>,
        answered: &mut Answered,
    ) -> Result<bool, StoreError> {
        let fingerprint = self.fingerprint(ask.policy(), ask.key());
        // Answers are sent behind this lock, and others may have found the request overdue.
        let mut shard = self.table.shard(fingerprint);
        match answered.try_recv() {
            Ok(answer) => return answer.map(|()| true),
            Err(TryRecvError::Closed) => return Ok(false),
            Err(TryRecvError::Empty) => {}
        }
        shard.recent_calls.ended(fingerprint);
        if let Some((lease, ..)) = shard.find(fingerprint, ask.rule()) {
            lease.state.overdue();
            lease.forget_waiting();
        }
        Ok(false)
    }

    /// Gives back the last units of a charge to the leases of this node, which may begin by that.
    pub(super) fn refund<C>(
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
        let mut shard = self.table.shard(fingerprint);
        if shard.find(fingerprint, rule).is_none()
            && self.is_open()
            && let Ok(rule) = shard.rule(rule, &self.last_rule, config)
            && shard
                .lease(fingerprint, &rule, LeaseState::default(), now)
                .is_some()
        {
            self.table.sweeping.want();
        }
        let lost = match shard.find(fingerprint, rule) {
            Some((Lease { rule, state, .. }, _, counts)) => {
                state.refund(now, units, position, &rule.terms, counts)
            }
            None => {
                let counts = &mut shard.counts;
                counts.spent = counts.spent.wrapping_sub(units);
                counts.lost += units;
                units
            }
        };
        self.unsettled.add(u64::from(lost > 0));
    }

    /// Forgets a call that another limit refuses: it is no demand, and no admission if a lease has
    /// paid for it.
    pub(super) fn forget_call(
        &self,
        (policy, key, rule): (&Policy, &Key, &Rule),
        cost: Cost,
        was_paid: bool,
    ) {
        let fingerprint = self.fingerprint(policy, key);
        let mut shard = self.table.shard(fingerprint);
        shard.counts.admitted -= u64::from(was_paid);
        if let Some((lease, ..)) = shard.find(fingerprint, rule) {
            lease.state.forget_demand(cost.get());
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
        let mut shard = self.table.shard(fingerprint);
        match shard.find(fingerprint, rule) {
            Some((lease, _, counts)) => lease.state.take_by_force(now, units, counts),
            None => units,
        }
    }

    /// Forgets what the store said about a key, whose state was changed otherwise, and what it will
    /// say to requests that are under way.
    pub(super) fn forget_answers(&self, policy: &Policy, key: &Key) {
        let fingerprint = self.fingerprint(policy, key);
        let mut shard = self.table.shard(fingerprint);
        let LeaseShard { keys, changes, .. } = &mut *shard;
        *changes += 1;
        for lease in keys.get(fingerprint).into_iter().flatten() {
            lease.state.forget_answers();
            lease.change = *changes;
        }
    }

    /// Drops the leases of a key. Answers to what was asked for before are none for later ones.
    pub(super) fn drop_leases(&self, policy: &Policy, key: &Key, now: Timestamp) {
        let fingerprint = self.fingerprint(policy, key);
        let mut shard = self.table.shard(fingerprint);
        let LeaseShard { keys, counts, .. } = &mut *shard;
        for mut lease in keys.remove(fingerprint).into_iter().flatten() {
            lease.state.take_out(now, counts);
        }
    }

    /// Takes out all leases, to be returned, and holds no more. Calls that wait go on.
    pub(super) fn close(&self, now: Timestamp) -> Vec<Leftover<Rule>> {
        self.is_closed.store(true, Ordering::Release);
        let mut all = Vec::new();
        for mut shard in self.table.each() {
            let LeaseShard { keys, counts, .. } = &mut *shard;
            for mut lease in keys.take_all().flatten() {
                let left = lease.state.take_out(now, counts);
                let Some(owner) = lease.rest.and_then(|rest| rest.owner) else {
                    continue;
                };
                all.extend(left.into_iter().map(|(charge, units)| Leftover {
                    owner: owner.clone(),
                    tightened: lease.rule.tightened.clone(),
                    charge,
                    units,
                }));
            }
        }
        all
    }

    /// Notes that units of a lease that was taken out are in the store again.
    pub(super) fn returned(&self, units: u64) {
        let counts = &mut self.table.shard(0).counts;
        counts.returned += units;
        counts.lost = counts.lost.wrapping_sub(units);
    }

    /// Returns the counters.
    pub(super) fn stats(&self, nodes: &Nodes) -> LeaseStats {
        let number = nodes.number();
        let mut stats = LeaseStats {
            failed: self.failed.get() + nodes.failed.get(),
            nodes: number.unwrap_or(0),
            ..LeaseStats::default()
        };
        for shard in self.table.each() {
            let counts = &shard.counts;
            stats.asked += counts.asked;
            stats.admitted += counts.admitted;
            stats.refused += counts.refused;
            stats.over_capacity += counts.over_capacity;
            stats.granted += counts.granted;
            // Units may be refunded in another shard than the one that counted them as spent, and
            // lost ones may be returned after all.
            stats.spent = stats.spent.wrapping_add(counts.spent);
            stats.lost = stats.lost.wrapping_add(counts.lost);
            stats.expired += counts.expired;
            stats.returned += counts.returned;
            stats.keys += shard.keys.len() as u64;
            if let Some(rule) = &shard.last_rule {
                let bound = rule.terms.undershoot_bound(number);
                stats.undershoot_bound = stats.undershoot_bound.max(bound);
            }
            let leases = shard.keys.iter().flat_map(|(_, leases)| leases);
            stats.left += leases.map(|lease| lease.state.left()).sum::<u64>();
        }
        stats
    }

    #[inline]
    fn link(&self) -> Link {
        Link {
            round_trip: self.round_trip.load(Ordering::Relaxed),
            store_is_ahead: self.store_is_ahead.load(Ordering::Relaxed),
        }
    }

    fn note_link(&self, asked: &LeaseRequest<Rule>, answer: &Decision, now: Timestamp) {
        let took = now.saturating_since(asked.request.sent_at).as_nanos();
        let took = u64::try_from(took).unwrap_or(u64::MAX);
        let mean = self.round_trip.load(Ordering::Relaxed);
        self.round_trip
            .store(mean - mean / 8 + took / 8, Ordering::Relaxed);
        if !answer.is_undecided() {
            let ahead = answer.at().as_nanos().wrapping_sub(now.as_nanos());
            self.store_is_ahead.store(ahead, Ordering::Relaxed);
        }
    }
}

impl<Rule: Leasable> Sweep for Leases<Rule> {
    fn sweeping(&self) -> &OneTask {
        &self.table.sweeping
    }

    fn forget_idle(&self, now: Timestamp) -> Option<Timestamp> {
        let forget = |mut shard: MutexGuard<'_, LeaseShard<Rule>>| {
            shard.forget_idle(now, IDLE_DURATIONS, LOOKS_OF_ROUND);
            shard.keys.next_look()
        };
        self.table.each().filter_map(forget).min()
    }
}

impl<Rule: Leasable> LeaseShard<Rule> {
    /// Returns the leases of a key under a rule, the generation of the key's entry, and the sums
    /// that they change.
    #[inline]
    fn find(
        &mut self,
        fingerprint: u64,
        rule: &Rule,
    ) -> Option<(&mut Lease<Rule>, u64, &mut LeaseStats)> {
        let (leases, generation) = self.keys.get_with_generation(fingerprint)?;
        let mut leases = leases.iter_mut();
        let lease = leases.find(|lease| lease.rule.written == *rule)?;
        Some((lease, generation, &mut self.counts))
    }

    /// Returns a request that no lease makes.
    fn asked(
        &mut self,
        fingerprint: u64,
        rule: Arc<LeasedRule<Rule>>,
        request: Request,
    ) -> LeaseRequest<Rule> {
        let known = self.keys.get_with_generation(fingerprint);
        LeaseRequest {
            fingerprint,
            generation: known.map(|(_, generation)| generation),
            rule,
            change: self.changes,
            request,
        }
    }

    /// Returns a rule with all that its leases share.
    ///
    /// # Errors
    ///
    /// When the rule cannot be leased.
    fn rule<C>(
        &mut self,
        rule: &Rule,
        shared: &Mutex<LastRule<Rule>>,
        config: &LeaseConfig<C>,
    ) -> Result<Arc<LeasedRule<Rule>>, crate::Error> {
        let is_same = |last: &&Arc<LeasedRule<Rule>>| last.written == *rule;
        if let Some(last) = self.last_rule.as_ref().filter(is_same) {
            return Ok(Arc::clone(last));
        }
        let mut shared = lock(shared);
        let leased = match shared.as_ref().filter(is_same) {
            Some(leased) => Arc::clone(leased),
            None => Arc::clone(shared.insert(Arc::new(LeasedRule::new(rule, config)?))),
        };
        Ok(Arc::clone(self.last_rule.insert(leased)))
    }

    /// Returns new leases of a key under a rule, as [`find`](Self::find) does; `None` if there is
    /// no room for the key.
    fn lease(
        &mut self,
        fingerprint: u64,
        rule: &Arc<LeasedRule<Rule>>,
        state: LeaseState,
        now: Timestamp,
    ) -> Option<(&mut Lease<Rule>, u64, &mut LeaseStats)> {
        if !self.keys.contains(fingerprint) {
            self.forget_idle(now, 0, LOOKS_OF_CALL);
            let at = look_at(now, rule.duration);
            self.keys.get_or_add(fingerprint, at, KeyLeases::new)?;
        }
        let (leases, generation) = self.keys.get_with_generation(fingerprint)?;
        let counts = &mut self.counts;
        if leases.len() >= MOST_RULES {
            counts.lost += leases.remove(0).state.left();
        }
        // A request that is under way may be older than a change while the key had no leases.
        leases.push(Lease {
            rule: Arc::clone(rule),
            state,
            change: self.changes,
            rest: None,
        });
        leases.last_mut().map(|lease| (lease, generation, counts))
    }

    /// Notes that the first request of a key is not under way any more.
    fn first_ended(&mut self, asked: &LeaseRequest<Rule>, result: &Result<(), StoreError>) {
        self.recent_calls.ended(asked.fingerprint);
        // Leases of any rule may have begun meanwhile.
        for lease in self.keys.get(asked.fingerprint).into_iter().flatten() {
            lease.state.ended(&asked.request);
            lease.wake(result);
        }
    }

    /// Looks at so many keys at most, and forgets those that have been idle for so many lease
    /// durations.
    fn forget_idle(&mut self, now: Timestamp, holds: u32, most: usize) {
        let Self { keys, counts, .. } = self;
        keys.forget_idle(now, most, |_, leases| {
            leases.retain(|lease| {
                let stays = lease.rule.duration.min(LOOK_AFTER) * holds;
                let since = now.saturating_sub(stays);
                let is_idle = lease.state.is_idle(since, lease.rule.terms.duration);
                if is_idle {
                    counts.expired += lease.state.left();
                }
                !is_idle
            });
            let lease = leases.first()?;
            Some(look_at(now, lease.rule.duration))
        });
    }
}

fn look_at(now: Timestamp, duration: Duration) -> Timestamp {
    now.saturating_add(duration.min(LOOK_AFTER))
}
