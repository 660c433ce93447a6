//! A cache of keys that are not blocked, so that calls that are admitted from memory need no round
//! trip to look for blocks.
//!
//! Leases and background synchronisation admit from memory, so they use this cache, for a second
//! and for the period. `Blocks` outside of them looks with each call, as it does at any store, and
//! knows nothing of it. After this node has written a block, looks that were sent before are
//! ignored.

use std::{
    sync::{Arc, Mutex, OnceLock},
    time::Duration,
};

use smallvec::SmallVec;

use crate::{
    algorithm::{Algorithm, StateKind},
    decision::{Decision, Decisions},
    key::Key,
    locks::lock,
    policy::Policy,
    store::{
        Ask, Backend, BoxFuture, Check, Store, StoreError, engine::runtime, local::Fingerprinter,
    },
    time::Timestamp,
};

/// Number of sets, and of slots in each. They take 3 MB, once a key was looked at.
const SETS: usize = 16_384;
const WAYS: usize = 4;

/// The keys that were looked at lately, and were not blocked.
///
/// A look is good for the lag. After half of it, a call has the key looked at again in the
/// background; one that comes later than that waits for a look of its own. So a block of another
/// node is noticed within the lag, and a busy key costs no call a round trip.
pub(crate) struct Unblocked {
    sets: OnceLock<Box<[Mutex<[UnblockedSlot; WAYS]>]>>,
    fingerprinter: Fingerprinter,
    lag: Duration,
}

/// A slot of the cache: a key that was looked at, or none.
#[derive(Clone, Copy, Default)]
struct UnblockedSlot {
    fingerprint: u64,
    /// Time at which the last look that found no block was sent; 0 if there is none.
    looked_at: Timestamp,
    /// Time at which the last look was sent.
    asked_at: Timestamp,
    used_at: Timestamp,
    /// Time at which this node last wrote a block. Looks that were sent before are ignored.
    wrote_at: Timestamp,
}

impl UnblockedSlot {
    fn wrote(&mut self, now: Timestamp) {
        (self.looked_at, self.wrote_at, self.used_at) = (Timestamp::default(), now, now);
    }
}

/// `true` if a key has to be looked at again in the background.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct IsDue(bool);

/// The fingerprint of an ask that is not for a block. No key has it.
const NO_BLOCK: u64 = 0;

/// The fingerprints of some keys.
type Fingerprints = SmallVec<[u64; 2]>;

impl Unblocked {
    pub(crate) fn new(lag: Duration) -> Arc<Self> {
        Arc::new(Self {
            sets: OnceLock::new(),
            fingerprinter: Fingerprinter::random(),
            lag,
        })
    }

    fn fingerprint(&self, policy: &Policy, key: &Key) -> u64 {
        self.fingerprinter
            .fingerprint(policy, key, StateKind::default())
    }

    /// Runs `work` on the slot of a key, which is claimed if the key has none.
    fn with_slot<T>(&self, fingerprint: u64, work: impl FnOnce(&mut UnblockedSlot) -> T) -> T {
        let sets = self
            .sets
            .get_or_init(|| (0..SETS).map(|_| Mutex::default()).collect());
        let set = &sets[(fingerprint >> 32) as usize % SETS];
        let mut slots = lock(set);
        let own = slots
            .iter()
            .position(|slot| slot.fingerprint == fingerprint);
        // Evicts the least recently used key.
        let oldest = (0..WAYS).min_by_key(|index| slots[*index].used_at);
        let index = own.or(oldest).unwrap_or(0);
        if own.is_none() {
            // The key may have been evicted since its block was written.
            let wrote_at = slots.iter().map(|slot| slot.wrote_at).max();
            slots[index] = UnblockedSlot {
                fingerprint,
                wrote_at: wrote_at.unwrap_or_default(),
                ..UnblockedSlot::default()
            };
        }
        work(&mut slots[index])
    }

    /// Finds a key that is known not to be blocked. The caller looks at it if it is due or not
    /// found.
    fn find(&self, fingerprint: u64, now: Timestamp) -> Option<IsDue> {
        self.with_slot(fingerprint, |slot| {
            slot.used_at = now;
            let age = |at: Timestamp| now.saturating_since(at);
            let is_known = slot.looked_at > Timestamp::default() && age(slot.looked_at) < self.lag;
            let is_due = 2 * age(slot.asked_at) >= self.lag;
            if !is_known || is_due {
                slot.asked_at = now;
            }
            is_known.then_some(IsDue(is_due))
        })
    }

    /// Takes in the answers to looks that were sent at `sent_at`. Looks at blocks have a
    /// fingerprint.
    fn learn(&self, fingerprints: &[u64], sent_at: Timestamp, looks: &Decisions) {
        let looks = fingerprints.iter().zip(looks.as_slice());
        for (fingerprint, look) in looks.filter(|(fingerprint, _)| **fingerprint != NO_BLOCK) {
            // Blocked keys are not cached: the answer to each call shows the end of the block.
            let is_blocked = look.is_undecided() || !look.reset_after().is_zero();
            self.with_slot(*fingerprint, |slot| {
                if sent_at > slot.wrote_at && sent_at >= slot.looked_at {
                    slot.looked_at = if is_blocked {
                        Timestamp::default()
                    } else {
                        sent_at
                    };
                }
            });
        }
    }

    /// Makes a call that may write blocks. After it, the keys are looked at anew.
    pub(crate) fn write<Rule, F>(
        self: &Arc<Self>,
        asks: &[Ask<'_, Rule>],
        write: Check<F>,
        now: impl Fn() -> Timestamp + Send + 'static,
    ) -> Check<BoxFuture<Result<Decisions, StoreError>>>
    where
        F: Future<Output = Result<Decisions, StoreError>> + Send + 'static,
    {
        let fingerprint = |ask: &Ask<'_, Rule>| self.fingerprint(ask.policy(), ask.key());
        let wrote = BlockWrite {
            unblocked: Arc::clone(self),
            fingerprints: asks.iter().map(fingerprint).collect(),
            now,
        };
        match write {
            Check::Ready(answer) => Check::Ready(answer),
            Check::Pending(answer) => Check::Pending(Box::pin(async move {
                let _until_the_end = wrote;
                answer.await
            })),
        }
    }

    /// Looks at keys in the store, except those that are known not to be blocked and the limits
    /// that `known` decides.
    pub(crate) fn look<Rule, S>(
        self: &Arc<Self>,
        (store, asks, now): (&S, &[Ask<'_, Rule>], Timestamp),
        known: impl Fn(&Ask<'_, Rule>) -> Option<Decision>,
        look: impl FnOnce(&[Ask<'_, Rule>]) -> Check<BoxFuture<Result<Decisions, StoreError>>>,
    ) -> Check<BoxFuture<Result<Decisions, StoreError>>>
    where
        S: Store<Rule, Answer: Send + 'static> + Backend<Error = StoreError>,
        Rule: Algorithm,
    {
        let mut looked = Vec::with_capacity(asks.len());
        let (mut unknown, mut due) = (SmallVec::<[_; 2]>::new(), SmallVec::<[_; 2]>::new());
        let (mut of_unknown, mut of_due) = (Fingerprints::new(), Fingerprints::new());
        for ask in asks {
            let (fingerprint, decision) = match ask.policy().is_of_blocks() {
                false => (NO_BLOCK, known(ask)),
                true => {
                    let fingerprint = self.fingerprint(ask.policy(), ask.key());
                    let found = self.find(fingerprint, now);
                    let found = found.filter(|_| !ask.decides());
                    if found == Some(IsDue(true)) {
                        due.push(*ask);
                        of_due.push(fingerprint);
                    }
                    (fingerprint, found.map(|_| ask.rule().look(None, now)))
                }
            };
            if decision.is_none() {
                unknown.push(*ask);
                of_unknown.push(fingerprint);
            }
            looked.push(decision);
        }
        if !due.is_empty() {
            self.look_in_background(store.look(&due), of_due, now);
        }
        if unknown.is_empty() {
            return Check::Ready(Ok(looked.into_iter().flatten().collect()));
        }
        let this = Arc::clone(self);
        let merge = move |in_store: Decisions| -> Decisions {
            this.learn(&of_unknown, now, &in_store);
            let mut in_store = in_store.as_slice().iter().copied();
            let all = looked.into_iter();
            all.filter_map(|looked| looked.or_else(|| in_store.next()))
                .collect()
        };
        match look(&unknown) {
            Check::Ready(answer) => Check::Ready(answer.map(merge)),
            Check::Pending(answer) => {
                Check::Pending(Box::pin(async move { answer.await.map(merge) }))
            }
        }
    }

    fn look_in_background<F>(
        self: &Arc<Self>,
        look: Check<F>,
        fingerprints: Fingerprints,
        sent_at: Timestamp,
    ) where
        F: Future<Output = Result<Decisions, StoreError>> + Send + 'static,
    {
        // A look that fails changes nothing: the key stays known for the rest of the lag. Then a
        // call looks, and fails.
        match (look, runtime()) {
            (Check::Ready(Ok(looks)), _) => self.learn(&fingerprints, sent_at, &looks),
            (Check::Pending(looks), Ok(runtime)) => {
                let this = Arc::clone(self);
                drop(runtime.spawn(async move {
                    if let Ok(looks) = looks.await {
                        this.learn(&fingerprints, sent_at, &looks);
                    }
                }));
            }
            (Check::Ready(Err(_)), _) | (Check::Pending(_), Err(_)) => {}
        }
    }
}

/// A call that may write blocks.
struct BlockWrite<N: Fn() -> Timestamp> {
    unblocked: Arc<Unblocked>,
    fingerprints: Fingerprints,
    now: N,
}

impl<N: Fn() -> Timestamp> Drop for BlockWrite<N> {
    fn drop(&mut self) {
        let now = (self.now)();
        for fingerprint in &self.fingerprints {
            self.unblocked.with_slot(*fingerprint, |slot| {
                slot.wrote(now);
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{IsDue, SETS, Unblocked, WAYS};
    use crate::{TokenBucket, algorithm::Algorithm, decision::Decisions, time::Timestamp};

    fn unused() -> Decisions {
        TokenBucket::per_second(10)
            .look(None, Timestamp::default())
            .into()
    }

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn a_look_is_good_for_the_lag_and_due_after_half_of_it() {
        let seen = Unblocked::new(Duration::from_millis(100));
        assert_eq!(seen.find(7, at(1000)), None);
        seen.learn(&[7], at(1000), &unused());
        assert_eq!(seen.find(7, at(1049)), Some(IsDue(false)));
        assert_eq!(seen.find(7, at(1050)), Some(IsDue(true)));
        // Not by each call.
        assert_eq!(seen.find(7, at(1099)), Some(IsDue(false)));
        assert_eq!(seen.find(7, at(1100)), None);
        assert_eq!(seen.find(8, at(1050)), None);
    }

    #[test]
    fn a_look_that_was_sent_before_a_write_says_nothing() {
        let seen = Unblocked::new(Duration::from_millis(100));
        seen.learn(&[7], at(1000), &unused());
        seen.with_slot(7, |slot| slot.wrote(at(1010)));
        assert_eq!(seen.find(7, at(1011)), None);
        seen.learn(&[7], at(1010), &unused());
        assert_eq!(seen.find(7, at(1012)), None);
        seen.learn(&[7], at(1011), &unused());
        assert!(seen.find(7, at(1012)).is_some());
    }

    #[test]
    fn the_keys_that_are_called_stay() {
        let seen = Unblocked::new(Duration::from_millis(100));
        let key = |n: u64| (n % SETS as u64) << 32 | (n + 1);
        seen.learn(&[7], at(1000), &unused());
        for n in 0..4 * (SETS * WAYS) as u64 {
            let now = at(1000 + n / 10_000);
            assert!(seen.find(7, now).is_some(), "{n}");
            seen.find(key(n), now);
        }
    }
}
