//! The permit of a call in flight, tied to the body of its response.

#[cfg(any(feature = "axum", feature = "tonic"))]
use std::{any::Any, mem};

#[cfg(any(feature = "axum", feature = "tonic"))]
use http_body::Body;

#[cfg(any(feature = "axum", feature = "tonic"))]
use super::metered::MeteredBody;
use crate::permit::Permit;

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
