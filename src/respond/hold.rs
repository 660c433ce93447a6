//! The permit of a call in flight, in its request and tied to the body of its response.

#[cfg(any(feature = "axum", feature = "tonic"))]
use std::{any::Any, mem};

use http::Extensions;
#[cfg(any(feature = "axum", feature = "tonic"))]
use http_body::Body;

#[cfg(any(feature = "axum", feature = "tonic"))]
use super::metered::MeteredBody;
use crate::{outcome::Outcome, permit::Permit};

/// A permit in the extensions of a request that has no outcome.
struct Carried(Permit);

impl Clone for Carried {
    /// Returns one that finds the permit, so that a clone of a request may be kept for longer than
    /// its call lasts.
    fn clone(&self) -> Self {
        Self(self.0.reference())
    }
}

impl Permit {
    /// Takes the permit of a call out of the extensions of its request, for a handler that goes on
    /// after the response.
    ///
    /// `None` if the call holds nothing. Of a request that was cloned, one clone holds the permit;
    /// the others find it while the call is in flight.
    pub fn take(extensions: &mut Extensions) -> Option<Self> {
        let of_outcome = extensions.get_mut().and_then(Outcome::take_permit);
        let of_outcome = of_outcome.and_then(Self::found);
        let alone = extensions.remove::<Carried>();
        Self::of_both(alone.and_then(|alone| alone.0.found()), of_outcome)
    }

    /// Returns a clone of the permit in the extensions of a request.
    pub(crate) fn of(extensions: &Extensions) -> Option<Self> {
        let of_outcome = extensions.get().and_then(Outcome::permit);
        let of_outcome = of_outcome.cloned().and_then(Self::found);
        let alone = extensions.get().map(|Carried(permit)| permit.clone());
        Self::of_both(alone.and_then(Self::found), of_outcome)
    }

    /// Puts a clone into the extensions of a request: into its outcome, if it has one, because each
    /// value takes a box, and may let the map grow.
    pub(crate) fn carry(&self, extensions: &mut Extensions) {
        if let Some(outcome) = extensions.get_mut::<Outcome>() {
            outcome.carry(self.clone());
        } else {
            let outer = extensions.remove::<Carried>();
            let outer = outer.and_then(|outer| outer.0.found());
            let both = outer.map(|outer| outer.and(self.clone()));
            extensions.insert(Carried(both.unwrap_or_else(|| self.clone())));
        }
    }
}

/// Gives a permit back when a body has ended, if it is one of axum or tonic; any other body at
/// once, because it cannot be wrapped in place.
pub(super) fn attach<B: 'static>(permit: Permit, body: &mut B) {
    #[cfg(any(feature = "axum", feature = "tonic"))]
    {
        let body: &mut dyn Any = body;
        #[cfg(feature = "axum")]
        if let Some(body) = body.downcast_mut::<axum::body::Body>() {
            return hold(permit, body, axum::body::Body::new);
        }
        #[cfg(feature = "tonic")]
        if let Some(body) = body.downcast_mut::<tonic::body::Body>() {
            return hold(permit, body, tonic::body::Body::new);
        }
    }
    let _ = body;
    drop(permit);
}

/// Wraps a body that has not ended yet.
#[cfg(any(feature = "axum", feature = "tonic"))]
fn hold<B: Body + Default>(permit: Permit, body: &mut B, wrap: fn(MeteredBody<B>) -> B) {
    if !body.is_end_stream() {
        *body = wrap(MeteredBody::held(mem::take(body), permit));
    }
}
