//! The maps of a refused request, which its answer is written into.

use std::mem;

use http::{Extensions, Request, Response};

use super::refusal::Refusal;
use crate::outcome::Outcome;

/// What outer layers said; rare, and so in a box.
pub(super) type Outer = Option<Box<Outcome>>;

/// An empty answer in the room that the request took up, without any allocation of its own.
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

/// Leaves the outcome where outer layers can ask for it.
#[inline]
pub(super) fn tell(extensions: &mut Extensions, outer: Outer, mut refusal: Refusal) {
    // A missing key leaves no outcome.
    if refusal.outcome().is_empty() {
        return;
    }
    let inner = refusal.take_outcome();
    match outer {
        None => extensions.insert(inner),
        Some(mut all) => {
            all.append(inner);
            extensions.insert(*all)
        }
    };
}
