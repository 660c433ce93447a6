//! The maps of a refused request, which its answer is written into.

use std::mem;

use http::{Request, Response, header::CONTENT_TYPE, response::Parts};

use super::{
    grpc::{self, ContentType},
    refusal::Refusal,
};
use crate::outcome::Outcome;

/// An answer to be, without any allocation of its own.
pub(super) struct Reuse {
    pub(super) parts: Parts,
    /// How to answer, if the request speaks gRPC.
    pub(super) grpc: Option<ContentType>,
    /// What outer layers said.
    outer: Option<Outcome>,
}

impl Reuse {
    /// An empty answer in the room that the request took up.
    #[inline]
    pub(super) fn of<B>(req: &mut Request<B>) -> Self {
        let content_type = req.headers().get(CONTENT_TYPE);
        let grpc = content_type.and_then(grpc::content_type_of);
        let (mut parts, ()) = Response::new(()).into_parts();
        parts.headers = mem::take(req.headers_mut());
        parts.headers.clear();
        parts.extensions = mem::take(req.extensions_mut());
        let outer = parts.extensions.remove::<Outcome>();
        parts.extensions.clear();
        Self { parts, grpc, outer }
    }

    /// The answer, which outer layers can ask for the outcome.
    #[inline]
    pub(super) fn finish<B>(mut self, refusal: Refusal, body: B) -> Response<B> {
        // A missing key leaves no outcome.
        if !refusal.outcome().is_empty() {
            let inner = refusal.into_outcome();
            self.parts.extensions.insert(match self.outer {
                Some(mut outer) => {
                    outer.append(inner);
                    outer
                }
                None => inner,
            });
        }
        Response::from_parts(self.parts, body)
    }
}
