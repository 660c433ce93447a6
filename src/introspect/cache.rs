//! The cache of tokens, and the look-ups that fill it.
//!
//! Active and inactive tokens have a cache each. In one cache, a flood of invented tokens would
//! evict tokens that the server confirmed, whatever the policy of eviction. A token stays in the
//! cache of active ones after its lifetime, so that its renewal is told from the look-up of an
//! invented token, and has room in flight of its own. Failed look-ups of unknown tokens are not
//! remembered, because there may be any number; their rate and their number in flight are bounded.
//!
//! A look-up is a task, which fills the cache, ends the flight and then answers those who wait, in
//! this order: a request that comes in between finds the cache filled. A guard ends the flight if
//! the task panics or its runtime shuts down.
//!
//! The cache is `quick_cache`: bounded, sharded, scan-resistant (S3-FIFO), four dependencies that
//! were in the tree. `moka` expires by a clock of its own, which tests could not move; `lru` takes
//! one lock. Lifetimes are in the entries, by the layer's `Clock`. The key of an entry is a BLAKE3
//! digest of 256 bits with a context of its own. It is not keyed with a secret: tokens are random,
//! and the key of a token without subject must be the same on every node.

use std::{
    collections::HashMap,
    fmt,
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
};

use quick_cache::sync::Cache;
use tokio::{
    runtime::Handle,
    sync::watch,
    time::{error::Elapsed, timeout},
};

use super::{
    Checked, Claims, IntrospectCounters, IntrospectSettings, IntrospectStats, InvalidAnswer,
    LookUp, Token, look_up::BoxError,
};
use crate::{TokenBucket, key::Key, locks::lock, pace::Pacer, random::Random, time::Timestamp};

/// The BLAKE3 digest of a token. The token itself is dropped after its look-up.
type TokenDigest = [u8; 32];

/// Separates digests of tokens from other uses of BLAKE3. It is not a secret.
const CONTEXT: &[u8; 32] = b"tollgate key::Introspect token 1";

/// The maximum length of all texts of the claims of one token, in bytes.
const MAX_CLAIMS: usize = 4096;

/// A look-up, with its type erased.
type LookUpFn = dyn Fn(Token) -> Pin<Box<dyn Future<Output = Result<Option<Claims>, BoxError>> + Send>>
    + Send
    + Sync;

/// The status of a token that was looked up; `None` if it is not active.
type TokenStatus = Option<Checked>;

/// The result of a look-up.
type LookUpOutcome = Result<TokenStatus, LookUpFailure>;

/// The cause of a failed look-up.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum LookUpFailure {
    /// An outage, for which `fail_open` is meant.
    Outage,
    /// It may be the token, so anybody can cause it.
    Token,
}

/// The state that the clones of a layer share.
pub(super) struct TokenCache {
    look_up: Box<LookUpFn>,
    pub(super) settings: IntrospectSettings,
    /// Separate from the inactive ones, so that invented tokens never evict a token that was
    /// active.
    active: Cache<TokenDigest, CachedToken>,
    inactive: Cache<TokenDigest, CachedToken>,
    in_flight: Mutex<LookUpsInFlight>,
    /// Set if the last renewal of an active token failed by an outage, which nobody can feign who
    /// has no such token.
    renewals_fail: AtomicBool,
    /// Limits the rate of look-ups of tokens that are not cached as active.
    unknown: Pacer<TokenBucket>,
    pub(super) counters: IntrospectCounters,
    #[cfg(feature = "tracing")]
    log: super::failure_log::LookUpLog,
}

/// The cached result of a look-up, and the times at which it changes.
#[derive(Clone)]
struct CachedToken {
    status: TokenStatus,
    fresh_until: Timestamp,
    /// From this time until `fresh_until`, a request starts a renewal and is answered from the
    /// cache without waiting. Equal to `fresh_until` if the token is not renewed.
    renew_at: Timestamp,
    stale_until: Timestamp,
    /// The end of the time in which an active token is accepted if there are too many look-ups to
    /// renew it.
    over_capacity_until: Timestamp,
    /// The earliest time of the next look-up after a failed one.
    retry_at: Timestamp,
    /// The cause of that failure.
    failure: LookUpFailure,
}

/// The answer to a request with a token.
pub(super) enum TokenAnswer {
    Active {
        checked: Checked,
        is_stale: bool,
    },
    Inactive,
    /// The look-up failed because of an outage.
    Unavailable,
    /// The look-up failed, perhaps because of the token, or there are too many.
    Unanswered,
}

/// An answer from the cache, or a look-up to wait for.
pub(super) enum TokenCheck {
    Ready(TokenAnswer),
    Pending(PendingAnswer),
}

/// A request that waits for a look-up in flight.
pub(super) struct PendingAnswer {
    result: LookUpReceiver,
    cache: Arc<TokenCache>,
    /// The cached result when the request came.
    cached: Option<CachedToken>,
}

impl TokenCache {
    pub(super) fn new(look_up: impl LookUp, settings: IntrospectSettings) -> Self {
        let cache = || Cache::new(settings.capacity);
        Self {
            look_up: Box::new(move |token| Box::pin(look_up.look_up(token))),
            active: cache(),
            inactive: cache(),
            in_flight: Mutex::default(),
            renewals_fail: AtomicBool::new(false),
            unknown: Pacer::new(settings.max_rate),
            counters: IntrospectCounters::default(),
            #[cfg(feature = "tracing")]
            log: super::failure_log::LookUpLog::default(),
            settings,
        }
    }

    pub(super) fn now(&self) -> Timestamp {
        self.settings.clock.now()
    }

    /// Finds the claims of a token in the cache, or joins or starts its look-up.
    pub(super) fn find(self: &Arc<Self>, token: &str) -> TokenCheck {
        let digest = *blake3::keyed_hash(CONTEXT, token.as_bytes()).as_bytes();
        let cached = self.cached(&digest);
        let now = self.now();
        let is_due = cached.as_ref().is_some_and(|cached| cached.is_due(now));
        let at_hand = self.at_hand(cached, now);
        if !is_due && let Some(found) = at_hand {
            return TokenCheck::Ready(found);
        }
        let Ok(runtime) = Handle::try_current() else {
            let error = "there is no runtime of tokio: expected a call within one";
            let failure = LookUpFailure::Outage;
            self.fail(error.into(), "", failure);
            let cached = self.cached(&digest);
            let found = at_hand.unwrap_or_else(|| self.fall_back(cached, failure, now));
            return TokenCheck::Ready(found);
        };
        let mut in_flight = self.in_flight();
        // Read again under the lock: a look-up fills the cache before it ends.
        let cached = self.cached(&digest);
        let (result, started) = if let Some(result) = in_flight.results.get(&digest).cloned() {
            if at_hand.is_none() {
                self.counters.shared.add(1);
            }
            (result, None)
        } else if !is_due && let Some(found) = self.at_hand(cached.clone(), now) {
            return TokenCheck::Ready(found);
        } else {
            let renews = cached
                .as_ref()
                .is_some_and(|cached| cached.status.is_some());
            let has_room = in_flight.count(renews) < self.settings.max_lookups
                && (renews || self.unknown.can_do_work(now));
            if !has_room {
                return TokenCheck::Ready(
                    at_hand.unwrap_or_else(|| self.over_capacity(cached, now)),
                );
            }
            let (sender, result) = watch::channel(None);
            in_flight.results.insert(digest, result.clone());
            in_flight.renewals += usize::from(renews);
            let task = LookUpTask {
                cache: Arc::clone(self),
                digest,
                renews,
                has_result: false,
            };
            let work = task.run(Token::new(token), cached.clone(), now, sender);
            (result, Some(work))
        };
        drop(in_flight);
        if let Some(work) = started {
            self.counters.lookups.add(1);
            // A task of its own, because the request that starts it may be dropped while others
            // wait. Spawned without the lock: a runtime that has shut down drops the task here, and
            // its drop takes the lock.
            runtime.spawn(work);
        }
        if let Some(found) = at_hand {
            return TokenCheck::Ready(found);
        }
        let cache = Arc::clone(self);
        TokenCheck::Pending(PendingAnswer {
            result,
            cache,
            cached,
        })
    }

    fn cached(&self, digest: &TokenDigest) -> Option<CachedToken> {
        let active = self.active.get(digest);
        active.or_else(|| self.inactive.get(digest))
    }

    /// Returns the cached answer if it is fresh, or if the next look-up is not due.
    fn at_hand(&self, cached: Option<CachedToken>, now: Timestamp) -> Option<TokenAnswer> {
        let cached = cached?;
        if now < cached.fresh_until {
            self.counters.hits.add(1);
            return Some(TokenAnswer::of(cached.status, false));
        }
        let failure = cached.failure;
        (now < cached.retry_at).then(|| self.fall_back(Some(cached), failure, now))
    }

    /// Returns the answer to a request whose token could not be looked up.
    fn fall_back(
        &self,
        cached: Option<CachedToken>,
        failure: LookUpFailure,
        now: Timestamp,
    ) -> TokenAnswer {
        match cached.filter(|cached| now < cached.stale_until) {
            Some(cached) => {
                self.counters.stale.add(1);
                TokenAnswer::of(cached.status, true)
            }
            None => match failure {
                LookUpFailure::Outage => TokenAnswer::Unavailable,
                LookUpFailure::Token => TokenAnswer::Unanswered,
            },
        }
    }

    /// Returns the answer to a request whose token is not looked up, because too many others are.
    ///
    /// Anybody can cause this, so it does not count as an outage: unknown tokens never pass, cached
    /// ones pass for a limited time.
    fn over_capacity(&self, cached: Option<CachedToken>, now: Timestamp) -> TokenAnswer {
        self.counters.crowded.add(1);
        let until = |cached: &CachedToken| match self.renewals_fail.load(Ordering::Relaxed) {
            // Look-ups that wait for a silent server take all the room.
            true => cached.over_capacity_until.max(cached.stale_until),
            false => cached.over_capacity_until,
        };
        match cached {
            Some(cached) if now < until(&cached) => {
                self.counters.stale.add(1);
                TokenAnswer::of(cached.status, true)
            }
            _ => TokenAnswer::Unanswered,
        }
    }

    /// Converts the result of a look-up, and counts failures.
    fn judge(
        &self,
        result: Result<Result<Option<Claims>, BoxError>, Elapsed>,
        digest: &TokenDigest,
        token: &str,
    ) -> LookUpOutcome {
        let error = match result {
            Ok(Ok(None)) => return Ok(None),
            Ok(Ok(Some(claims))) if claims.len() <= MAX_CLAIMS => {
                if claims.expiry().is_some_and(|expiry| expiry <= self.now()) {
                    self.counters.expired.add(1);
                    return Ok(None);
                }
                let key = key_of(&claims, digest);
                let claims = Arc::new(claims);
                return Ok(Some(Checked { claims, key }));
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
        let failure = match error.is::<InvalidAnswer>() {
            true => {
                self.counters.invalid_answers.add(1);
                LookUpFailure::Token
            }
            false => LookUpFailure::Outage,
        };
        self.fail(error, token, failure);
        Err(failure)
    }

    /// Counts and logs a failed look-up.
    #[cold]
    fn fail(&self, error: BoxError, token: &str, failure: LookUpFailure) {
        self.counters.failed.add(1);
        #[cfg(not(feature = "tracing"))]
        let _ = (error, token, failure);
        #[cfg(feature = "tracing")]
        {
            let failures = self.counters.failed.get();
            let passes = self.settings.fails_open && failure == LookUpFailure::Outage;
            let now = self.settings.clock.now();
            self.log.write(&*error, token, failures, passes, now);
        }
    }

    /// Stores the result of a look-up that began at `began`.
    fn store(
        &self,
        digest: TokenDigest,
        cached: Option<CachedToken>,
        began: Timestamp,
        outcome: &LookUpOutcome,
    ) {
        let settings = &self.settings;
        if cached
            .as_ref()
            .is_some_and(|cached| cached.status.is_some())
        {
            // Relaxed: a mark of its own, which a request may as well see a little later.
            let is_outage = matches!(outcome, Err(LookUpFailure::Outage));
            self.renewals_fail.store(is_outage, Ordering::Relaxed);
        }
        let status = match outcome {
            Ok(status) => status,
            Err(failure) => {
                // Cached tokens are answered from the cache until the next look-up. Failures of
                // unknown tokens are not stored: there may be any number of them.
                if let Some(mut cached) = cached {
                    cached.retry_at = self.now().saturating_add(settings.retry_after);
                    cached.failure = *failure;
                    self.insert(digest, cached);
                }
                return;
            }
        };
        let (max_age, expiry) = match status {
            Some(checked) => (settings.max_age, checked.claims.expiry()),
            None => (settings.inactive_age, None),
        };
        let expiry = expiry.unwrap_or(Timestamp::MAX);
        let fresh_until = began.saturating_add(max_age).min(expiry);
        let later = |time| fresh_until.saturating_add(time).min(expiry);
        let renews = status.is_some() && fresh_until < expiry;
        // Differs for each token and time, so that tokens that were looked up together are not
        // renewed together.
        let permille = 700 + Random::new(seed_of(&digest) ^ began.as_nanos()).up_to(200) as u32;
        self.insert(
            digest,
            CachedToken {
                status: status.clone(),
                fresh_until,
                renew_at: match renews {
                    true => began.saturating_add(max_age / 1000 * permille),
                    false => fresh_until,
                },
                stale_until: later(settings.serve_stale),
                over_capacity_until: match status {
                    Some(_) => later(max_age),
                    None => fresh_until,
                },
                retry_at: began,
                // Not read: `retry_at` has passed.
                failure: LookUpFailure::Token,
            },
        );
    }

    fn insert(&self, digest: TokenDigest, cached: CachedToken) {
        let (to, from) = match cached.status {
            Some(_) => (&self.active, &self.inactive),
            None => (&self.inactive, &self.active),
        };
        to.insert(digest, cached);
        from.remove(&digest);
    }

    fn in_flight(&self) -> MutexGuard<'_, LookUpsInFlight> {
        lock(&self.in_flight)
    }

    pub(super) fn stats(&self) -> IntrospectStats {
        let in_flight = self.in_flight().results.len() as u64;
        let [active, inactive] = [&self.active, &self.inactive].map(|cache| cache.len() as u64);
        self.counters.read(active, inactive, in_flight)
    }
}

impl CachedToken {
    /// Returns `true` if a renewal is due although the answer is fresh.
    fn is_due(&self, now: Timestamp) -> bool {
        now >= self.renew_at.max(self.retry_at) && now < self.fresh_until
    }
}

impl PendingAnswer {
    /// Waits for the result of the look-up.
    pub(super) async fn wait(mut self) -> TokenAnswer {
        let result = self.result.wait_for(Option::is_some).await;
        // An error means that the task panicked, or that its runtime has shut down.
        let outcome = result.ok().and_then(|outcome| outcome.clone());
        match outcome.unwrap_or(Err(LookUpFailure::Token)) {
            Ok(status) => TokenAnswer::of(status, false),
            Err(failure) => {
                let now = self.cache.now();
                self.cache.fall_back(self.cached, failure, now)
            }
        }
    }
}

impl TokenAnswer {
    fn of(status: TokenStatus, is_stale: bool) -> Self {
        match status {
            Some(checked) => Self::Active { checked, is_stale },
            None => Self::Inactive,
        }
    }
}

fn seed_of(digest: &TokenDigest) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&digest[..8]);
    u64::from_le_bytes(bytes)
}

/// Returns the key of an active token.
fn key_of(claims: &Claims, digest: &TokenDigest) -> Key {
    let [kind, key] = match (claims.subject(), claims.client_id()) {
        (Some(subject), _) => ["sub".into(), subject.into()],
        (None, Some(client)) => ["client".into(), client.into()],
        (None, None) => ["token".into(), Key::bytes(digest)],
    };
    Key::join([kind, key])
}

impl fmt::Debug for TokenCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.stats().fmt(f)
    }
}

/// Receives the outcome of a look-up. An error means that its task panicked, or that its runtime
/// has shut down.
type LookUpReceiver = watch::Receiver<Option<LookUpOutcome>>;

/// The look-ups in flight, at most one for each token.
#[derive(Default)]
struct LookUpsInFlight {
    results: HashMap<TokenDigest, LookUpReceiver>,
    /// The number of look-ups that renew an active token.
    renewals: usize,
}

impl LookUpsInFlight {
    /// Returns the number of look-ups that renew an active token, or of the others.
    fn count(&self, renews: bool) -> usize {
        match renews {
            true => self.renewals,
            false => self.results.len() - self.renewals,
        }
    }
}

/// A look-up in flight. Dropping it ends the look-up, also if its task panics.
struct LookUpTask {
    cache: Arc<TokenCache>,
    digest: TokenDigest,
    renews: bool,
    has_result: bool,
}

impl LookUpTask {
    /// Looks the token up, fills the cache, and then answers the waiting requests.
    async fn run(
        mut self,
        token: Token,
        cached: Option<CachedToken>,
        began: Timestamp,
        sender: watch::Sender<Option<LookUpOutcome>>,
    ) {
        let cache = Arc::clone(&self.cache);
        // A copy for the log, which removes the token from errors.
        let text = Token::new(token.expose());
        let result = timeout(cache.settings.deadline, (cache.look_up)(token)).await;
        let outcome = cache.judge(result, &self.digest, text.expose());
        cache.store(self.digest, cached, began, &outcome);
        self.has_result = true;
        drop(self);
        sender.send_replace(Some(outcome));
    }
}

impl Drop for LookUpTask {
    fn drop(&mut self) {
        let mut in_flight = self.cache.in_flight();
        in_flight.results.remove(&self.digest);
        in_flight.renewals -= usize::from(self.renews);
        drop(in_flight);
        if !self.has_result {
            self.cache.counters.aborted.add(1);
            let cause = "the look-up panicked, or its runtime has shut down";
            self.cache.fail(cause.into(), "", LookUpFailure::Token);
        }
    }
}
