//! The cache of tokens, and the look-ups in flight.

use std::{
    collections::HashMap,
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use quick_cache::sync::Cache;
use tokio::{runtime::Handle, sync::watch, time::timeout};

use super::{
    Claims, IntrospectStats, InvalidAnswer, LookUp, Token, introspected::Checked,
    look_up::BoxError, settings::Settings, stats::Counters,
};
use crate::{TokenBucket, key::Key, pace::Pacer, time::Timestamp};

/// BLAKE3 of a token. The token itself is dropped once it is looked up.
type Digest = [u8; 32];

/// The greatest length of all texts of some claims, in bytes.
const MAX_CLAIMS: usize = 4096;

/// A look-up, with its type erased.
type LookUpFn = dyn Fn(Token) -> Pin<Box<dyn Future<Output = Result<Option<Claims>, BoxError>> + Send>>
    + Send
    + Sync;

/// What is known about a token: `None` if it is not active.
type Known = Option<Checked>;

/// The result of a look-up; `None` if it failed.
type Outcome = Option<Known>;

/// The state that the clones of a layer share.
pub(super) struct Lookups {
    look_up: Box<LookUpFn>,
    pub(super) settings: Settings,
    /// Apart from the inactive ones, so that invented tokens evict no token that was ever active.
    active: Cache<Digest, Entry>,
    inactive: Cache<Digest, Entry>,
    flights: Mutex<Flights>,
    /// The rate of look-ups of tokens that are not known as active.
    unknown: Pacer<TokenBucket>,
    pub(super) counters: Counters,
    #[cfg(feature = "tracing")]
    log: Mutex<LogState>,
}

#[derive(Default)]
struct Flights {
    by_token: HashMap<Digest, Flight>,
    /// Number of flights for tokens in the cache of active ones. These have room of their own.
    renewals: usize,
}

/// A look-up that some requests wait for.
#[derive(Clone)]
pub(super) struct Flight {
    result: watch::Receiver<Option<Outcome>>,
}

#[derive(Clone)]
struct Entry {
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
    flight: Flight,
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
            log: Mutex::default(),
            settings,
        }
    }

    pub(super) fn now(&self) -> Timestamp {
        self.settings.clock.now()
    }

    /// Finds the claims of a token in the cache, or joins or starts its look-up.
    pub(super) fn find(self: &Arc<Self>, token: &str) -> Finding {
        // The context separates these digests from those of keys.
        let digest = blake3::derive_key("tollgate 2026 key::Introspect token", token.as_bytes());
        let now = self.now();
        let entry = self.entry(&digest);
        if let Some(hit) = self.hit(entry.as_ref(), now) {
            return Finding::Found(hit);
        }
        if entry.as_ref().is_some_and(|entry| now < entry.retry_at) {
            return Finding::Found(self.fall_back(entry, now));
        }
        let mut flights = self.flights();
        if let Some(flight) = flights.by_token.get(&digest) {
            self.counters.shared.add(1);
            let flight = flight.clone();
            return self.search(flight, entry);
        }
        // A flight fills the cache before it ends.
        let entry = self.entry(&digest);
        if let Some(hit) = self.hit(entry.as_ref(), now) {
            return Finding::Found(hit);
        }
        let Some(flight) = self.start(&mut flights, digest, token, entry.as_ref(), now) else {
            drop(flights);
            return Finding::Found(self.fall_back(entry, now));
        };
        self.search(flight, entry)
    }

    fn search(self: &Arc<Self>, flight: Flight, entry: Option<Entry>) -> Finding {
        Finding::InFlight(Search {
            flight,
            lookups: Arc::clone(self),
            entry,
        })
    }

    fn entry(&self, digest: &Digest) -> Option<Entry> {
        let active = self.active.get(digest);
        active.or_else(|| self.inactive.get(digest))
    }

    fn hit(&self, entry: Option<&Entry>, now: Timestamp) -> Option<Found> {
        let entry = entry.filter(|entry| now < entry.fresh_until)?;
        self.counters.hits.add(1);
        Some(Found::of(entry.known.clone(), false))
    }

    /// Starts a look-up, unless there are too many, or there is no runtime.
    fn start(
        self: &Arc<Self>,
        flights: &mut Flights,
        digest: Digest,
        token: &str,
        entry: Option<&Entry>,
        now: Timestamp,
    ) -> Option<Flight> {
        let renews = entry.is_some_and(|entry| entry.known.is_some());
        let unknown = flights.by_token.len() - flights.renewals;
        let has_room = match renews {
            true => flights.renewals < self.settings.max_lookups,
            false => unknown < self.settings.max_lookups && self.unknown.can_do_work(now),
        };
        if !has_room {
            self.counters.crowded.add(1);
            return None;
        }
        let Ok(runtime) = Handle::try_current() else {
            self.counters.failed.add(1);
            self.log_failure("there is no runtime of tokio: expected a call within one");
            return None;
        };
        self.counters.lookups.add(1);
        let (sender, result) = watch::channel(None);
        let flight = Flight { result };
        flights.by_token.insert(digest, flight.clone());
        flights.renewals += usize::from(renews);
        let landing = Landing {
            lookups: Arc::clone(self),
            digest,
            renews,
            has_ended: false,
        };
        // A task of its own: the request that starts it may be dropped while others wait.
        runtime.spawn(landing.fly(Token::new(token), entry.cloned(), now, sender));
        Some(flight)
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
    fn judge(
        &self,
        result: Result<Result<Option<Claims>, BoxError>, tokio::time::error::Elapsed>,
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
        self.counters.failed.add(1);
        if error.is::<InvalidAnswer>() {
            self.counters.invalid_answers.add(1);
        }
        self.log_failure(&cause(&*error, token));
        None
    }

    /// Keeps the result of a look-up that began at `began`.
    fn keep(&self, digest: Digest, entry: Option<Entry>, began: Timestamp, outcome: &Outcome) {
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

    fn flights(&self) -> MutexGuard<'_, Flights> {
        self.flights.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn stats(&self) -> IntrospectStats {
        let in_flight = self.flights().by_token.len() as u64;
        let [active, inactive] = [&self.active, &self.inactive].map(|cache| cache.len() as u64);
        self.counters.read(active, inactive, in_flight)
    }

    /// Logs the cause of a failed look-up, at most once a minute.
    #[cold]
    fn log_failure(&self, cause: &str) {
        #[cfg(not(feature = "tracing"))]
        let _ = cause;
        #[cfg(feature = "tracing")]
        {
            let now = self.now();
            let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
            if log.due.is_some_and(|due| now < due) {
                log.unlogged += 1;
                return;
            }
            log.due = Some(now.saturating_add(std::time::Duration::from_secs(60)));
            let unlogged = std::mem::take(&mut log.unlogged);
            // A subscriber may be slow.
            drop(log);
            tracing::error!(
                cause,
                failures = self.counters.failed.get(),
                unlogged,
                "a token could not be looked up; {} (logged once a minute; `failures` counts all)",
                match self.settings.fails_open {
                    true => "such requests pass without a subject, as `fail_open` asks",
                    false => "such requests are refused with 503",
                }
            );
        }
    }
}

#[cfg(feature = "tracing")]
#[derive(Default)]
struct LogState {
    due: Option<Timestamp>,
    unlogged: u64,
}

impl Found {
    fn of(known: Known, is_stale: bool) -> Self {
        match known {
            Some(checked) => Self::Active { checked, is_stale },
            None => Self::Inactive,
        }
    }
}

impl Search {
    /// Waits for the result of the look-up.
    pub(super) async fn wait(mut self) -> Found {
        let result = self.flight.result.wait_for(Option::is_some).await;
        // An error is a task that panicked, or whose runtime has shut down.
        let outcome = result.ok().and_then(|outcome| outcome.clone()).flatten();
        match outcome {
            Some(known) => Found::of(known, false),
            None => self.lookups.fall_back(self.entry, self.lookups.now()),
        }
    }
}

/// Ends a flight, also if its task panics or is dropped.
struct Landing {
    lookups: Arc<Lookups>,
    digest: Digest,
    renews: bool,
    has_ended: bool,
}

impl Landing {
    async fn fly(
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
        self.has_ended = true;
        drop(self);
        sender.send_replace(Some(outcome));
    }
}

impl Drop for Landing {
    fn drop(&mut self) {
        let mut flights = self.lookups.flights();
        flights.by_token.remove(&self.digest);
        flights.renewals -= usize::from(self.renews);
        drop(flights);
        if !self.has_ended {
            self.lookups.counters.failed.add(1);
            self.lookups.counters.aborted.add(1);
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

/// Returns the text of an error and of its sources, without the token.
fn cause(error: &(dyn std::error::Error + 'static), token: &str) -> String {
    /// Limit in characters.
    const MAX_CAUSE: usize = 1024;
    let mut cause = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let text = error.to_string();
        if !cause.contains(&text) {
            cause = format!("{cause}: {text}");
        }
        source = error.source();
    }
    let cause = cause.replace(token, "<token>");
    cause.chars().take(MAX_CAUSE).collect()
}

impl fmt::Debug for Lookups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.stats().fmt(f)
    }
}
