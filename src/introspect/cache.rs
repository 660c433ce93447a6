//! The cache of tokens, and the look-ups that fill it.

use std::{
    collections::HashMap,
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use quick_cache::sync::Cache;
use tokio::{
    runtime::Handle,
    sync::watch,
    time::{error::Elapsed, timeout},
};

use super::{
    BoxError, Checked, Claims, Counters, IntrospectStats, InvalidAnswer, LookUp, Settings, Token,
};
use crate::{TokenBucket, key::Key, pace::Pacer, random::Random, time::Timestamp};

/// BLAKE3 of a token. The token itself is dropped once it is looked up.
pub(super) type Digest = [u8; 32];

/// Separates digests of tokens from other uses of BLAKE3. It is no secret.
const CONTEXT: &[u8; 32] = b"tollgate key::Introspect token 1";

/// The greatest length of all texts of some claims, in bytes.
const MAX_CLAIMS: usize = 4096;

/// A look-up, with its type erased.
pub(super) type LookUpFn = dyn Fn(Token) -> Pin<Box<dyn Future<Output = Result<Option<Claims>, BoxError>> + Send>>
    + Send
    + Sync;

/// What is known about a token: `None` if it is not active.
pub(super) type Known = Option<Checked>;

/// The result of a look-up; `None` if it failed.
pub(super) type Outcome = Option<Known>;

/// The state that the clones of a layer share.
pub(super) struct Lookups {
    pub(super) look_up: Box<LookUpFn>,
    pub(super) settings: Settings,
    /// Apart from the inactive ones, so that invented tokens evict no token that was ever active.
    active: Cache<Digest, Entry>,
    inactive: Cache<Digest, Entry>,
    flights: Mutex<Flights>,
    /// The rate of look-ups of tokens that are not known as active.
    unknown: Pacer<TokenBucket>,
    pub(super) counters: Counters,
    #[cfg(feature = "tracing")]
    log: super::failure_log::FailureLog,
}

#[derive(Clone)]
pub(super) struct Entry {
    known: Known,
    fresh_until: Timestamp,
    /// A request that comes from then on, while it is fresh, has it renewed and does not wait. The end of one that is not renewed.
    renew_at: Timestamp,
    stale_until: Timestamp,
    /// Until then a known token is good if there are too many look-ups to renew it.
    crowded_until: Timestamp,
    /// After a failed look-up, the time of the next one.
    retry_at: Timestamp,
}

/// The answer to a request with a token.
pub(super) enum Found {
    Active {
        checked: Checked,
        is_stale: bool,
    },
    Inactive,
    /// The look-up failed.
    Unavailable,
    /// There are too many look-ups.
    Crowded,
}

/// The answer to a request, or where to wait for it.
pub(super) enum Finding {
    Found(Found),
    InFlight(Search),
}

/// A request that waits for a flight.
pub(super) struct Search {
    result: FlightResult,
    lookups: Arc<Lookups>,
    /// The entry of the cache when the request came.
    entry: Option<Entry>,
}

impl Lookups {
    pub(super) fn new(look_up: impl LookUp, settings: Settings) -> Self {
        let cache = || Cache::new(settings.capacity);
        Self {
            look_up: Box::new(move |token| Box::pin(look_up.look_up(token))),
            active: cache(),
            inactive: cache(),
            flights: Mutex::default(),
            unknown: Pacer::new(settings.max_rate),
            counters: Counters::default(),
            #[cfg(feature = "tracing")]
            log: super::failure_log::FailureLog::default(),
            settings,
        }
    }

    pub(super) fn now(&self) -> Timestamp {
        self.settings.clock.now()
    }

    /// Finds the claims of a token in the cache, or joins or starts its look-up.
    pub(super) fn find(self: &Arc<Self>, token: &str) -> Finding {
        let digest = *blake3::keyed_hash(CONTEXT, token.as_bytes()).as_bytes();
        let entry = self.entry(&digest);
        let now = self.now();
        let is_due = entry.as_ref().is_some_and(|entry| entry.is_due(now));
        let at_hand = self.at_hand(entry, now);
        if !is_due && let Some(found) = at_hand {
            return Finding::Found(found);
        }
        let Ok(runtime) = Handle::try_current() else {
            let error = "there is no runtime of tokio: expected a call within one";
            self.fail(error.into(), "");
            let found = at_hand.unwrap_or_else(|| self.fall_back(self.entry(&digest), now));
            return Finding::Found(found);
        };
        let mut flights = self.flights();
        // Read once more: a flight fills the cache before it ends.
        let entry = self.entry(&digest);
        let (result, started) = if let Some(result) = flights.result(&digest) {
            if at_hand.is_none() {
                self.counters.shared.add(1);
            }
            (result, None)
        } else if !is_due && let Some(found) = self.at_hand(entry.clone(), now) {
            return Finding::Found(found);
        } else {
            let renews = entry.as_ref().is_some_and(|entry| entry.known.is_some());
            let has_room = flights.count(renews) < self.settings.max_lookups
                && (renews || self.unknown.can_do_work(now));
            if !has_room {
                return Finding::Found(at_hand.unwrap_or_else(|| self.crowded(entry, now)));
            }
            let (sender, result) = watch::channel(None);
            flights.insert(digest, renews, result.clone());
            let flight = Flight::new(Arc::clone(self), digest, renews);
            let work = flight.fly(Token::new(token), entry.clone(), now, sender);
            (result, Some(work))
        };
        drop(flights);
        if let Some(work) = started {
            self.counters.lookups.add(1);
            // A task of its own: the request that starts it may be dropped while others wait. Without the lock, because a runtime that has
            // shut down drops it here.
            runtime.spawn(work);
        }
        if let Some(found) = at_hand {
            return Finding::Found(found);
        }
        let lookups = Arc::clone(self);
        Finding::InFlight(Search {
            result,
            lookups,
            entry,
        })
    }

    fn entry(&self, digest: &Digest) -> Option<Entry> {
        let active = self.active.get(digest);
        active.or_else(|| self.inactive.get(digest))
    }

    /// Returns the answer from the cache, if it is fresh, or the next attempt is not due.
    fn at_hand(&self, entry: Option<Entry>, now: Timestamp) -> Option<Found> {
        let entry = entry?;
        if now < entry.fresh_until {
            self.counters.hits.add(1);
            return Some(Found::of(entry.known, false));
        }
        (now < entry.retry_at).then(|| self.fall_back(Some(entry), now))
    }

    /// Returns the answer to a request whose token could not be looked up.
    fn fall_back(&self, entry: Option<Entry>, now: Timestamp) -> Found {
        match entry.filter(|entry| now < entry.stale_until) {
            Some(entry) => {
                self.counters.stale.add(1);
                Found::of(entry.known, true)
            }
            None => Found::Unavailable,
        }
    }

    /// Returns the answer to a request whose token is not looked up, because too many are.
    ///
    /// That is no outage, which anybody could make. So tokens that nobody knows do not pass, and known ones do for a while.
    fn crowded(&self, entry: Option<Entry>, now: Timestamp) -> Found {
        self.counters.crowded.add(1);
        match entry {
            Some(entry) if now < entry.crowded_until.max(entry.stale_until) => {
                self.counters.stale.add(1);
                Found::of(entry.known, true)
            }
            _ => Found::Crowded,
        }
    }

    /// Reads the result of a look-up, and counts it.
    pub(super) fn judge(
        &self,
        result: Result<Result<Option<Claims>, BoxError>, Elapsed>,
        digest: &Digest,
        token: &str,
    ) -> Outcome {
        let error = match result {
            Ok(Ok(None)) => return Some(None),
            Ok(Ok(Some(claims))) if claims.len() <= MAX_CLAIMS => {
                if claims.expiry().is_some_and(|expiry| expiry <= self.now()) {
                    self.counters.expired.add(1);
                    return Some(None);
                }
                let key = key_of(&claims, digest);
                let claims = Arc::new(claims);
                return Some(Some(Checked { claims, key }));
            }
            Ok(Ok(Some(_))) => {
                InvalidAnswer::new(format!("the claims have more than {MAX_CLAIMS} bytes")).into()
            }
            Ok(Err(error)) => error,
            Err(_) => {
                self.counters.timeouts.add(1);
                format!(
                    "no answer within the deadline of {:?}",
                    self.settings.deadline
                )
                .into()
            }
        };
        if error.is::<InvalidAnswer>() {
            self.counters.invalid_answers.add(1);
        }
        self.fail(error, token);
        None
    }

    /// Counts and logs a failed look-up.
    #[cold]
    pub(super) fn fail(&self, error: BoxError, token: &str) {
        self.counters.failed.add(1);
        #[cfg(not(feature = "tracing"))]
        let _ = (error, token);
        #[cfg(feature = "tracing")]
        self.log
            .write(&*error, token, self.counters.failed.get(), &self.settings);
    }

    /// Keeps the result of a look-up that began at `began`.
    pub(super) fn keep(
        &self,
        digest: Digest,
        entry: Option<Entry>,
        began: Timestamp,
        outcome: &Outcome,
    ) {
        let settings = &self.settings;
        let Some(known) = outcome else {
            // Until the next attempt, a token in the cache is answered from it. Unknown ones are not remembered: there may be any number.
            if let Some(mut entry) = entry {
                entry.retry_at = self.now().saturating_add(settings.retry_after);
                self.insert(digest, entry);
            }
            return;
        };
        let (max_age, expiry) = match known {
            Some(checked) => (settings.max_age, checked.claims.expiry()),
            None => (settings.inactive_age, None),
        };
        let expiry = expiry.unwrap_or(Timestamp::MAX);
        let fresh_until = began.saturating_add(max_age).min(expiry);
        let later = |time| fresh_until.saturating_add(time).min(expiry);
        let renews = known.is_some() && fresh_until < expiry;
        // Another one for each token and time, so that tokens that came together are not renewed together.
        let permille = 700 + Random::new(seed_of(&digest) ^ began.as_nanos()).up_to(200) as u32;
        self.insert(
            digest,
            Entry {
                known: known.clone(),
                fresh_until,
                renew_at: match renews {
                    true => began.saturating_add(max_age / 1000 * permille),
                    false => fresh_until,
                },
                stale_until: later(settings.serve_stale),
                crowded_until: match known {
                    Some(_) => later(max_age),
                    None => fresh_until,
                },
                retry_at: began,
            },
        );
    }

    fn insert(&self, digest: Digest, entry: Entry) {
        let (to, from) = match entry.known {
            Some(_) => (&self.active, &self.inactive),
            None => (&self.inactive, &self.active),
        };
        to.insert(digest, entry);
        from.remove(&digest);
    }

    pub(super) fn flights(&self) -> MutexGuard<'_, Flights> {
        self.flights.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn stats(&self) -> IntrospectStats {
        let in_flight = self.flights().len() as u64;
        let [active, inactive] = [&self.active, &self.inactive].map(|cache| cache.len() as u64);
        self.counters.read(active, inactive, in_flight)
    }
}

impl Entry {
    /// Returns `true` if the token is looked up although the answer is fresh.
    fn is_due(&self, now: Timestamp) -> bool {
        now >= self.renew_at.max(self.retry_at) && now < self.fresh_until
    }
}

impl Search {
    /// Waits for the result of the look-up.
    pub(super) async fn wait(mut self) -> Found {
        let result = self.result.wait_for(Option::is_some).await;
        // An error is a task that panicked, or whose runtime has shut down.
        let outcome = result.ok().and_then(|outcome| outcome.clone()).flatten();
        match outcome {
            Some(known) => Found::of(known, false),
            None => self.lookups.fall_back(self.entry, self.lookups.now()),
        }
    }
}

impl Found {
    fn of(known: Known, is_stale: bool) -> Self {
        match known {
            Some(checked) => Self::Active { checked, is_stale },
            None => Self::Inactive,
        }
    }
}

fn seed_of(digest: &Digest) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&digest[..8]);
    u64::from_le_bytes(bytes)
}

/// Returns the key of an active token.
fn key_of(claims: &Claims, digest: &Digest) -> Key {
    let [kind, key] = match (claims.subject(), claims.client_id()) {
        (Some(subject), _) => ["sub".into(), subject.into()],
        (None, Some(client)) => ["client".into(), client.into()],
        (None, None) => ["token".into(), Key::bytes(digest)],
    };
    Key::join([kind, key])
}

impl fmt::Debug for Lookups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.stats().fmt(f)
    }
}

/// The result of a flight, once there is one. An error is a task that panicked, or whose runtime has shut down.
pub(super) type FlightResult = watch::Receiver<Option<Outcome>>;

/// The look-ups in flight, one for each token.
#[derive(Default)]
pub(super) struct Flights {
    results: HashMap<Digest, FlightResult>,
    /// Number of those for tokens in the cache of active ones.
    renewals: usize,
}

impl Flights {
    pub(super) fn result(&self, digest: &Digest) -> Option<FlightResult> {
        self.results.get(digest).cloned()
    }

    pub(super) fn insert(&mut self, digest: Digest, renews: bool, result: FlightResult) {
        self.results.insert(digest, result);
        self.renewals += usize::from(renews);
    }

    pub(super) fn len(&self) -> usize {
        self.results.len()
    }

    /// Returns the number of those that renew a known token, or of the others.
    pub(super) fn count(&self, renews: bool) -> usize {
        match renews {
            true => self.renewals,
            false => self.len() - self.renewals,
        }
    }
}

/// One of them. It ends when this is dropped, also if its task panics.
pub(super) struct Flight {
    lookups: Arc<Lookups>,
    digest: Digest,
    renews: bool,
    has_result: bool,
}

impl Flight {
    pub(super) fn new(lookups: Arc<Lookups>, digest: Digest, renews: bool) -> Self {
        Self {
            lookups,
            digest,
            renews,
            has_result: false,
        }
    }

    /// Looks the token up, fills the cache, and answers those who wait.
    pub(super) async fn fly(
        mut self,
        token: Token,
        entry: Option<Entry>,
        began: Timestamp,
        sender: watch::Sender<Option<Outcome>>,
    ) {
        let lookups = Arc::clone(&self.lookups);
        // A copy for the log, from which it is taken out.
        let text = Token::new(token.expose());
        let result = timeout(lookups.settings.deadline, (lookups.look_up)(token)).await;
        let outcome = lookups.judge(result, &self.digest, text.expose());
        lookups.keep(self.digest, entry, began, &outcome);
        self.has_result = true;
        drop(self);
        sender.send_replace(Some(outcome));
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let mut flights = self.lookups.flights();
        flights.results.remove(&self.digest);
        flights.renewals -= usize::from(self.renews);
        drop(flights);
        if !self.has_result {
            self.lookups.counters.aborted.add(1);
            let cause = "the look-up panicked, or its runtime has shut down";
            self.lookups.fail(cause.into(), "");
        }
    }
}
