//! A charge after the response, by a responder that cannot refuse then.
//~ error[E0277]: the responder `Silent` cannot refuse a request after its response
//~ take `.charge_if(…)` instead, which charges before the request

mod parts;

use http::{Request, Response};
use tollgate::{
    Outcome, RateLimitLayer, TokenBucket,
    respond::{Refusal, Respond},
};
use tower::ServiceBuilder;

#[derive(Clone)]
struct Silent;

impl<E> Respond<Request<String>, Response<String>, E> for Silent {
    type Annotation = ();

    fn wants_outcome(&self) -> bool {
        false
    }

    fn admit(&self, _: &mut Request<String>, _: Outcome) {}

    fn annotate((): (), _: &mut Response<String>) {}

    fn refuse(&self, _: Request<String>, _: Refusal) -> Result<Response<String>, E> {
        Ok(Response::default())
    }
}

fn main() {
    let layer = RateLimitLayer::new(TokenBucket::per_hour(3))
        .respond(Silent)
        .charge_after(|_: &Response<String>| true);
    let service = parts::service::<String, std::convert::Infallible>();
    parts::serve(ServiceBuilder::new().layer(layer).service(service));
}
