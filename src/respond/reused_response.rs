//! The response to a refused request, in the maps of the request.

use std::mem;

use http::{HeaderValue, Request, Response, header::CACHE_CONTROL, response::Parts};

use super::refusal::Refusal;
use crate::outcome::Outcome;

/// The outcome of outer layers. Boxed, because it is rare.
pub(super) type OuterOutcome = Option<Box<Outcome>>;

/// Returns the parts of an empty response that reuse the maps of the request, so that they take no allocation.
#[inline]
pub(super) fn empty_parts<B>(req: &mut Request<B>) -> (Parts, OuterOutcome) {
    let (mut parts, ()) = Response::new(()).into_parts();
    mem::swap(&mut parts.headers, req.headers_mut());
    parts.headers.clear();
    mem::swap(&mut parts.extensions, req.extensions_mut());
    let outer = parts.extensions.remove::<Outcome>().map(Box::new);
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
