//! The maps of a refused request, which its answer is written into.

use std::mem;

use http::{HeaderValue, Request, Response, header::CONTENT_TYPE, response::Parts};

use super::refusal::Refusal;
use crate::outcome::Outcome;

/// An answer to be, without any allocation of its own.
pub(super) struct Reuse {
    pub(super) parts: Parts,
    /// The request's.
    pub(super) content_type: Option<HeaderValue>,
    /// What outer layers said.
    outer: Option<Outcome>,
}

impl Reuse {
    /// An empty answer in the room that the request took up.
    pub(super) fn of<B>(mut req: Request<B>) -> Self {
        let (mut parts, ()) = Response::new(()).into_parts();
        parts.headers = mem::take(req.headers_mut());
        let content_type = parts.headers.remove(CONTENT_TYPE);
        parts.headers.clear();
        parts.extensions = mem::take(req.extensions_mut());
        let outer = parts.extensions.remove::<Outcome>();
        parts.extensions.clear();
        Self {
            parts,
            content_type,
            outer,
        }
    }

    /// The answer, which outer layers can ask for the outcome.
    pub(super) fn finish<B>(self, refusal: Refusal, body: B) -> Response<B> {
        let Self {
            mut parts, outer, ..
        } = self;
        let inner = refusal.into_outcome();
        // A missing key leaves no outcome.
        if !inner.is_empty() {
            parts.extensions.insert(match outer {
                Some(mut outer) => {
                    outer.append(inner);
                    outer
                }
                None => inner,
            });
        }
        Response::from_parts(parts, body)
    }
}
