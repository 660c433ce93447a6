//! The settings of the responders `Http` and `Grpc`, and the response to a refused request that
//! both begin with.
//!
//! `Respond` takes the refused request by value and reuses its emptied maps; new maps take two
//! allocations and 8 % more time. `annotate` has no `self`: the field values are made with the
//! decision and carried in the annotation.

use std::{mem, sync::Arc, time::Duration};

use http::{
    Extensions, HeaderValue, Request, Response, StatusCode, header::CACHE_CONTROL, response::Parts,
};

use super::{
    headers::{CachedPolicyHeader, Fields, Headers, UpstreamFields},
    refusal::Refusal,
};
use crate::{
    outcome::Outcome,
    random::{self, Random},
};

/// The code of gRPC for a call that [can never pass](super::Refusal::is_oversized).
///
/// # Examples
///
/// ```
/// use tollgate::respond::{Grpc, OversizedCode};
///
/// let respond = Grpc::new().oversized_code(OversizedCode::FailedPrecondition);
/// # let _ = respond;
/// assert_eq!(OversizedCode::default() as u32, 3);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OversizedCode {
    /// 3 `INVALID_ARGUMENT`: the call is at fault, whatever the state of the server. The default;
    /// no client retries it.
    #[default]
    InvalidArgument = 3,
    /// 8 `RESOURCE_EXHAUSTED`, as for a call that may pass later. Some clients retry it at once.
    ResourceExhausted = 8,
    /// 9 `FAILED_PRECONDITION`: not before the server was changed. No client retries it.
    FailedPrecondition = 9,
    /// 11 `OUT_OF_RANGE`. Exporters of OpenTelemetry retry it.
    OutOfRange = 11,
}

/// The settings of a responder.
#[derive(Clone, Debug, Default)]
pub(super) struct SharedSettings {
    headers: Headers,
    pub(super) upstream: UpstreamFields,
    /// Set if admitted requests do not carry their outcome.
    // Negated, so that the default is `false`.
    pub(super) omits_outcome: bool,
    /// The most whole seconds that are added to the waits in refusals.
    jitter: u64,
    jitter_seed: u64,
    /// The answers to requests that can never pass; `None` is 413.
    pub(super) oversized_status: Option<StatusCode>,
    pub(super) oversized_code: OversizedCode,
    /// The cached header of the only policy, shared by all clones.
    cached: Arc<CachedPolicyHeader>,
}

impl SharedSettings {
    pub(super) fn set_headers(&mut self, headers: Headers) {
        self.headers = headers;
        self.cached = Arc::default();
    }

    pub(super) fn set_jitter(&mut self, max: Duration) {
        (self.jitter, self.jitter_seed) = (max.as_secs(), random::seed());
    }

    pub(super) fn wants_outcome(&self) -> bool {
        self.headers != Headers::None || !self.omits_outcome
    }

    /// Moves the outcome of an admitted request into its extensions, unless outcomes are turned
    /// off.
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

    /// Returns the wait to send to the client: the refusal's, plus some whole seconds of jitter.
    pub(super) fn retry_after(&self, refusal: &Refusal) -> Option<Duration> {
        let wait = refusal.retry_after()?;
        if self.jitter == 0 {
            return Some(wait);
        }
        // Requests decided at one instant may get the same jitter; instants differ between clients.
        let at = refusal
            .outcome()
            .iter()
            .map(|(_, decision)| decision.at().as_nanos());
        // Instants close to each other give unrelated numbers.
        let seconds =
            Random::new(self.jitter_seed ^ at.max().unwrap_or_default()).up_to(self.jitter);
        Some(wait.saturating_add(Duration::from_secs(seconds)))
    }
}

/// The setters of a responder with a field `settings`.
macro_rules! setters {
    () => {
        /// Sets the format of the rate limit fields.
        ///
        /// Default: [`Headers::Draft`]. `Retry-After`, or gRPC's status, is sent with every format.
        /// Browsers show the fields to scripts of other origins if
        /// [`Headers::EXPOSED`] are exposed.
        #[must_use]
        pub fn headers(mut self, headers: Headers) -> Self {
            self.settings.set_headers(headers);
            self
        }

        /// Sets the treatment of rate limit fields that a response already has, such as those of a
        /// proxied upstream.
        ///
        /// Default: [`UpstreamFields::Stricter`]. With every setting, the response has one valid
        /// set of fields in this layer's format.
        #[must_use]
        pub fn upstream_fields(mut self, upstream: UpstreamFields) -> Self {
            self.settings.upstream = upstream;
            self
        }

        /// Turns the [`Outcome`] in the extensions of admitted requests on or off.
        ///
        /// Default: on, with any [`headers`](Self::headers). It costs one allocation. If it is off,
        /// a handler that takes an `Outcome` answers 500. If headers are off too, a request that is
        /// admitted by rates allocates nothing. A refusal always carries the outcome in the
        /// extensions of its response.
        #[must_use]
        pub fn outcome(mut self, wanted: bool) -> Self {
            self.settings.omits_outcome = !wanted;
            self
        }

        /// Sets the code of gRPC for calls that [can never
        /// pass](crate::respond::Refusal::is_oversized).
        ///
        /// Default: [`InvalidArgument`](crate::respond::OversizedCode::InvalidArgument), because
        /// clients retry `RESOURCE_EXHAUSTED`.
        #[must_use]
        pub fn oversized_code(mut self, code: OversizedCode) -> Self {
            self.settings.oversized_code = code;
            self
        }

        /// Adds a jitter of up to `max`, in whole seconds, to the wait in refusals.
        ///
        /// This spreads the retries of clients that were refused together. The jitter is a hash of
        /// the instant of the decision under a random seed. Default: none.
        #[doc(alias = "thundering herd")]
        #[must_use]
        pub fn retry_jitter(mut self, max: Duration) -> Self {
            self.settings.set_jitter(max);
            self
        }
    };
}

pub(super) use setters;

/// Writes the part of [`Respond`](super::Respond) about admitted requests, for a responder with a
/// field `settings`.
macro_rules! admissions {
    ($BIn:ident, $BOut:ident) => {
        type Annotation = Fields;

        #[inline]
        fn wants_outcome(&self) -> bool {
            self.settings.wants_outcome()
        }

        fn admit(&self, req: &mut Request<$BIn>, mut outcome: Outcome) -> Fields {
            self.settings.admit(req.extensions_mut(), &mut outcome)
        }

        #[inline]
        fn outer_outcome<'a>(&self, req: &'a Request<$BIn>) -> Option<&'a Outcome> {
            req.extensions().get()
        }

        fn annotate(fields: Fields, res: &mut Response<$BOut>) {
            fields.write(res.headers_mut());
        }

        fn revise(&self, _: Fields, outcome: &Outcome) -> Fields {
            self.settings.fields(outcome)
        }

        fn carry_permit(&self, req: &mut Request<$BIn>, permit: &Permit) {
            permit.carry(req.extensions_mut());
        }

        fn attach_permit(permit: Permit, res: &mut Response<$BOut>) {
            super::hold::attach(permit, res.body_mut());
        }
    };
}

pub(super) use admissions;

/// The outcome of outer layers. Boxed, because it is rare.
pub(super) type OuterOutcome = Option<Box<Outcome>>;

/// Returns the parts of an empty response that reuse the maps of the request, so that they take no
/// allocation.
#[inline]
pub(super) fn empty_parts<B>(req: &mut Request<B>) -> (Parts, OuterOutcome) {
    let (mut parts, ()) = Response::new(()).into_parts();
    mem::swap(&mut parts.headers, req.headers_mut());
    parts.headers.clear();
    mem::swap(&mut parts.extensions, req.extensions_mut());
    let outer = parts.extensions.remove::<Outcome>().map(|mut outer| {
        // The call ends with this response.
        drop(outer.take_permit());
        Box::new(outer)
    });
    parts.extensions.clear();
    (parts, outer)
}

/// Adds `Cache-Control: no-store` and the outcome, which every refusal carries.
///
/// Called last, so that the closure of [`Http::body`](super::Http::body) cannot remove them.
#[inline]
pub(super) fn finish(parts: &mut Parts, outer: OuterOutcome, refusal: &mut Refusal) {
    let no_store = HeaderValue::from_static("no-store");
    // A map that is full (32768 fields) is left as it is.
    let _ = parts.headers.try_insert(CACHE_CONTROL, no_store);
    // A request without a key has no outcome.
    if refusal.outcome().is_empty() {
        return;
    }
    match outer {
        None => {
            let outcome = refusal.outcome_mut();
            let kept = parts.extensions.get_or_insert_with(|| mem::take(outcome));
            // The closure may have put another one there.
            if !outcome.is_empty() {
                *kept = mem::take(outcome);
            }
        }
        Some(mut all) => {
            all.append(mem::take(refusal.outcome_mut()));
            parts.extensions.insert(*all);
        }
    }
}
