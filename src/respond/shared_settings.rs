//! The settings that `Http` and `Grpc` share.

use std::{mem, sync::Arc, time::Duration};

use http::{Extensions, HeaderMap};

use super::{
    headers::{CachedPolicyHeader, Fields, Headers, UpstreamFields},
    oversized::Oversized,
    refusal::Refusal,
};
use crate::{
    outcome::Outcome,
    random::{self, Random},
};

#[derive(Clone, Debug, Default)]
pub(super) struct SharedSettings {
    headers: Headers,
    upstream: UpstreamFields,
    /// Set if admitted requests do not carry their outcome.
    // Negated, so that the default is `false`.
    omits_outcome: bool,
    jitter: Option<RetryJitter>,
    pub(super) oversized: Oversized,
    /// Shared by all clones.
    cached: Arc<CachedPolicyHeader>,
}

#[derive(Clone, Debug)]
struct RetryJitter {
    max_seconds: u64,
    seed: u64,
}

impl SharedSettings {
    pub(super) fn set_headers(&mut self, headers: Headers) {
        self.headers = headers;
        self.cached = Arc::default();
    }

    pub(super) fn set_upstream(&mut self, upstream: UpstreamFields) {
        self.upstream = upstream;
    }

    pub(super) fn set_outcome(&mut self, wanted: bool) {
        self.omits_outcome = !wanted;
    }

    pub(super) fn set_jitter(&mut self, max: Duration) {
        let max_seconds = max.as_secs();
        self.jitter = (max_seconds > 0).then(|| RetryJitter {
            max_seconds,
            seed: random::seed(),
        });
    }

    pub(super) fn wants_outcome(&self) -> bool {
        self.headers != Headers::None || !self.omits_outcome
    }

    /// Moves the outcome of an admitted request into its extensions, unless that is turned off.
    // Takes it by reference, because it is long to move.
    pub(super) fn admit(&self, extensions: &mut Extensions, outcome: &mut Outcome) -> Fields {
        let fields = self.fields(outcome);
        if !self.omits_outcome {
            let all = extensions.get_or_insert_with(|| mem::take(outcome));
            // Empty by now, unless there is an outer layer.
            all.append(mem::take(outcome));
        }
        fields
    }

    pub(super) fn fields(&self, outcome: &Outcome) -> Fields {
        Fields::new(outcome, self.headers, self.upstream, &self.cached)
    }

    pub(super) fn write_fields(&self, outcome: &Outcome, headers: &mut HeaderMap) {
        self.fields(outcome).write(headers);
    }

    /// Returns the wait to send to the client: the refusal's, plus some whole seconds of jitter.
    pub(super) fn retry_after(&self, refusal: &Refusal) -> Option<Duration> {
        let wait = refusal.retry_after()?;
        let Some(RetryJitter { max_seconds, seed }) = &self.jitter else {
            return Some(wait);
        };
        // Requests decided at one instant may get the same jitter; instants differ between clients.
        let at = refusal
            .outcome()
            .iter()
            .map(|(_, decision)| decision.at().as_nanos());
        // Instants close to each other give unrelated numbers.
        let seconds = Random::new(seed ^ at.max().unwrap_or_default()).up_to(*max_seconds);
        Some(wait.saturating_add(Duration::from_secs(seconds)))
    }
}

/// The setters of a responder with a field `settings`.
macro_rules! setters {
    () => {
        /// Sets the format of the rate limit fields.
        ///
        /// Default: [`Headers::Draft`]. `Retry-After`, or gRPC's status, is sent with every format. Browsers show
        /// the fields to scripts of other origins if [`EXPOSED_HEADERS`](crate::respond::EXPOSED_HEADERS) are
        /// exposed.
        #[must_use]
        pub fn headers(mut self, headers: Headers) -> Self {
            self.settings.set_headers(headers);
            self
        }

        /// Sets what happens to rate limit fields that a response has already, as that of a proxied upstream.
        ///
        /// Default: [`UpstreamFields::Stricter`]. Whatever the setting and the upstream, the fields of this layer's format are valid, and there is
        /// one set of them.
        #[must_use]
        pub fn upstream_fields(mut self, upstream: UpstreamFields) -> Self {
            self.settings.set_upstream(upstream);
            self
        }

        /// Turns the [`Outcome`] in the extensions of admitted requests on or off.
        ///
        /// Default: on, with any [`headers`](Self::headers). It costs one allocation. If it is off, a handler that
        /// takes an `Outcome` answers 500. If headers are off too, an admitted request allocates nothing. A refusal
        /// always carries the outcome in the extensions of its response.
        #[must_use]
        pub fn outcome(mut self, wanted: bool) -> Self {
            self.settings.set_outcome(wanted);
            self
        }

        /// Sets the code of gRPC for calls that [can never pass](crate::respond::Refusal::is_oversized).
        ///
        /// Default: [`InvalidArgument`](crate::respond::OversizedCode::InvalidArgument), because clients retry `RESOURCE_EXHAUSTED`.
        #[must_use]
        pub fn oversized_code(mut self, code: OversizedCode) -> Self {
            self.settings.oversized.code = code;
            self
        }

        /// Adds 0 to `max` to the wait in refusals, in whole seconds.
        ///
        /// This spreads the retries of clients that were refused together. The jitter is a hash of the instant of
        /// the decision under a random seed. Default: none.
        #[doc(alias = "thundering herd")]
        #[must_use]
        pub fn retry_jitter(mut self, max: Duration) -> Self {
            self.settings.set_jitter(max);
            self
        }
    };
}

pub(super) use setters;
