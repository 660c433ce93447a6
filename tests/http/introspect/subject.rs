//! The layer under test, around a service that answers with what it found in the extensions.

use std::{convert::Infallible, future::Ready, task::Poll};

use http::{Request, Response};
use tollgate::key::introspect::{Introspect, Introspected};
use tower::{Layer, Service, ServiceExt};

/// Answers with the claims of the request.
#[derive(Clone, Debug)]
pub(crate) struct Echo;

impl Service<Request<()>> for Echo {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = Ready<Result<Response<String>, Infallible>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, req: Request<()>) -> Self::Future {
        let found = req.extensions().get::<Introspected>().unwrap();
        let text = match (found.claims(), found.is_stale(), found.is_unchecked()) {
            (Some(claims), false, false) => claims.subject().unwrap_or("-").to_owned(),
            (Some(claims), true, false) => format!("{} stale", claims.subject().unwrap_or("-")),
            (None, false, true) => "unchecked".to_owned(),
            (None, false, false) => "anonymous".to_owned(),
            other => panic!("{other:?}"),
        };
        std::future::ready(Ok(Response::new(text)))
    }
}

pub(crate) type Subject = <Introspect as Layer<Echo>>::Service;

pub(crate) fn around(layer: &Introspect) -> Subject {
    layer.layer(Echo)
}

pub(crate) fn with_token(token: &str) -> Request<()> {
    let request = Request::builder().header("authorization", format!("Bearer {token}"));
    request.body(()).unwrap()
}

/// Sends one request. Returns the body of an admitted one, otherwise the status.
pub(crate) async fn ask(subject: &Subject, token: &str) -> String {
    let response = subject.clone().oneshot(with_token(token)).await.unwrap();
    match response.status().as_u16() {
        200 => response.into_body(),
        status => status.to_string(),
    }
}
