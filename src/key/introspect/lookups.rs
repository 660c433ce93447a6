//! The cache of tokens, and the look-ups that fill it.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use quick_cache::sync::Cache;
use tokio::{runtime::Handle, sync::watch, time::error::Elapsed};

use super::{
    Claims, IntrospectStats, InvalidAnswer, LookUp, Token,
    flight::{Flight, FlightResult, Flights},
    introspected::Checked,
    look_up::BoxError,
    settings::Settings,
    stats::Counters,
};
use crate::{TokenBucket, key::Key, pace::Pacer, time::Timestamp};

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
    stale_until: Timestamp,
    /// After a failed look-up, the time of the next one.
    retry_at: Timestamp,
}

/// The answer to a request with a token.
pub(super) enum Found {
    Active { checked: Checked, is_stale: bool },
    Inactive,
    Unavailable,
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
        if let Some(found) = self.at_hand(entry, now) {
            return Finding::Found(found);
        }
        let Ok(runtime) = Handle::try_current() else {
            let error = "there is no runtime of tokio: expected a call within one";
            self.fail(error.into(), "");
            return Finding::Found(self.fall_back(self.entry(&digest), now));
        };
        let mut flights = self.flights();
        // Read once more: a flight fills the cache before it ends.
        let entry = self.entry(&digest);
        let (result, started) = if let Some(result) = flights.result(&digest) {
            self.counters.shared.add(1);
            (result, None)
        } else if let Some(found) = self.at_hand(entry.clone(), now) {
            return Finding::Found(found);
        } else {
            let renews = entry.as_ref().is_some_and(|entry| entry.known.is_some());
            let has_room = flights.count(renews) < self.settings.max_lookups
                && (renews || self.unknown.can_do_work(now));
            if !has_room {
                self.counters.crowded.add(1);
                return Finding::Found(self.fall_back(entry, now));
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
        self.insert(
            digest,
            Entry {
                known: known.clone(),
                fresh_until,
                stale_until: fresh_until.saturating_add(settings.serve_stale).min(expiry),
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
