//! The response to a refused request, in the maps of the request.

use std::mem;

use http::{HeaderValue, Request, Response, header::CACHE_CONTROL, response::Parts};

use super::refusal::Refusal;
use crate::outcome::Outcome;

/// The outcome of outer layers. Boxed, because it is rare.
pub(super) type OuterOutcome = Option<Box<Outcome>>;

/// Returns an empty response that reuses the maps of the request, so that it takes no allocation.
#[inline]
pub(super) fn empty_response<B>(req: &mut Request<B>) -> (Response<()>, OuterOutcome) {
    let mut response = Response::new(());
    mem::swap(response.headers_mut(), req.headers_mut());
    response.headers_mut().clear();
    let extensions = response.extensions_mut();
    mem::swap(extensions, req.extensions_mut());
    let outer = extensions.remove::<Outcome>().map(Box::new);
    extensions.clear();
    (response, outer)
}

/// Adds `Cache-Control: no-store` and the outcome, which every refusal carries.
///
/// Called last, so that the closure of [`Http::body`](super::Http::body) cannot remove them.
#[inline]
pub(super) fn finish(parts: &mut Parts, outer: OuterOutcome, mut refusal: Refusal) {
    let no_store = HeaderValue::from_static("no-store");
    // A map that is full (32768 fields) is left as it is.
    let _ = parts.headers.try_insert(CACHE_CONTROL, no_store);
    // A request without a key has no outcome.
    if refusal.outcome().is_empty() {
        return;
    }
    let inner = refusal.take_outcome();
    match outer {
        None => parts.extensions.insert(inner),
        Some(mut all) => {
            all.append(inner);
            parts.extensions.insert(*all)
        }
    };
}
