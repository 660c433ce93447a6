//! Reuses the maps of a refused request for its answer.

use std::mem;

use http::{HeaderValue, Request, Response, header::CACHE_CONTROL, response::Parts};

use super::refusal::Refusal;
use crate::outcome::Outcome;

/// The outcome of outer layers; rare, and therefore boxed.
pub(super) type Outer = Option<Box<Outcome>>;

/// Returns an empty answer in the emptied maps of the request, without an allocation.
#[inline]
pub(super) fn empty_answer<B>(req: &mut Request<B>) -> (Response<()>, Outer) {
    let mut answer = Response::new(());
    mem::swap(answer.headers_mut(), req.headers_mut());
    answer.headers_mut().clear();
    let extensions = answer.extensions_mut();
    mem::swap(extensions, req.extensions_mut());
    let outer = extensions.remove::<Outcome>().map(Box::new);
    extensions.clear();
    (answer, outer)
}

/// Adds what every refusal carries: `Cache-Control: no-store`, and the outcome as an extension.
///
/// Called last, so that no other writer of the answer can remove them.
#[inline]
pub(super) fn finish(parts: &mut Parts, outer: Outer, mut refusal: Refusal) {
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
