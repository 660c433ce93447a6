//! What `Http` and `Grpc` can be told alike.

use std::{hash::BuildHasher, mem, sync::Arc, time::Duration};

use foldhash::fast::RandomState;
use http::{Extensions, HeaderMap};

use super::{fields::Fields, headers::Headers, policy_header::CachedHeader, refusal::Refusal};
use crate::outcome::Outcome;

#[derive(Clone, Debug, Default)]
pub(super) struct Settings {
    headers: Headers,
    /// Whether admitted requests go without their outcome.
    untold: bool,
    jitter: Option<Jitter>,
    /// Shared by all clones.
    cached: Arc<CachedHeader>,
}

#[derive(Clone, Debug)]
struct Jitter {
    most: u64,
    seed: RandomState,
}

impl Settings {
    pub(super) fn set_headers(&mut self, headers: Headers) {
        self.headers = headers;
        self.cached = Arc::default();
    }

    pub(super) fn set_outcome(&mut self, wanted: bool) {
        self.untold = !wanted;
    }

    pub(super) fn set_jitter(&mut self, most: Duration) {
        let most = most.as_secs();
        self.jitter = (most > 0).then(|| Jitter {
            most,
            seed: RandomState::default(),
        });
    }

    pub(super) fn wants_outcome(&self) -> bool {
        self.headers != Headers::None || !self.untold
    }

    /// Leaves the outcome of an admitted request in its extensions.
    pub(super) fn admit(&self, extensions: &mut Extensions, outcome: Outcome) -> Fields {
        let fields = self.fields(&outcome);
        if !self.untold {
            // Stacked layers are rare: one look-up for all others.
            if let Some(outer) = extensions.insert(outcome)
                && let Some(all) = extensions.get_mut::<Outcome>()
            {
                let inner = mem::replace(all, outer);
                all.append(inner);
            }
        }
        fields
    }

    fn fields(&self, outcome: &Outcome) -> Fields {
        Fields::of(outcome, self.headers, &self.cached)
    }

    pub(super) fn write_fields(&self, outcome: &Outcome, headers: &mut HeaderMap) {
        self.fields(outcome).write(headers);
    }

    /// The wait to tell the client: what it must wait, or some whole seconds more.
    pub(super) fn retry_after(&self, refusal: &Refusal) -> Option<Duration> {
        let wait = refusal.retry_after()?;
        let Some(Jitter { most, seed }) = &self.jitter else {
            return Some(wait);
        };
        // Requests of one instant may share their delay; their clients are spread by
        // the instants of all the others.
        let at = refusal
            .outcome()
            .iter()
            .map(|(_, decision)| decision.at().as_nanos());
        let hash = seed.hash_one(at.max());
        let seconds = (u128::from(hash) * (u128::from(*most) + 1)) >> 64;
        Some(wait.saturating_add(Duration::from_secs(seconds as u64)))
    }
}

/// The setters, on a type with a field `settings`.
macro_rules! setters {
    () => {
        /// The same answers with the fields that tell how limits stand in another shape.
        ///
        /// [`Headers::Draft`] unless set. What a refusal must carry (`Retry-After`, or gRPC's status) is sent
        /// whatever the shape. Browsers show the fields to scripts of other origins if
        /// [`EXPOSED_HEADERS`](crate::respond::EXPOSED_HEADERS) are exposed.
        #[must_use]
        pub fn headers(mut self, headers: Headers) -> Self {
            self.settings.set_headers(headers);
            self
        }

        /// The same answers, with or without the [`Outcome`] in the extensions of
        /// admitted requests.
        ///
        /// With it unless set, whatever the [`headers`](Self::headers): handlers may ask for it. It costs one allocation.
        /// Without headers and without it, an admitted request allocates nothing, and handlers that take an
        /// `Outcome` are answered with 500. A refusal carries it always, in its response's extensions.
        #[must_use]
        pub fn outcome(mut self, wanted: bool) -> Self {
            self.settings.set_outcome(wanted);
            self
        }

        /// The same answers, asking clients to wait up to `most` longer than they must.
        ///
        /// Adds 0 to `most` whole seconds, so that clients which were refused together do not come back
        /// together. The draw is a hash of the instant of the decision under a random seed.
        #[must_use]
        pub fn retry_jitter(mut self, most: Duration) -> Self {
            self.settings.set_jitter(most);
            self
        }
    };
}

pub(super) use setters;
