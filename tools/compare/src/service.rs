//! Services behind layers, which are asked without a server and without a runtime.

use std::{
    convert::Infallible,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};

use axum::{body::Body, extract::ConnectInfo};
use http::{Request, Response, StatusCode, header::RETRY_AFTER};
use tower::{Layer, ServiceExt, service_fn, util::BoxCloneSyncService};

use crate::{answer::Answer, library::Budget};

pub type Service = BoxCloneSyncService<Request<Body>, Response<Body>, Infallible>;

/// The proxy in front of the services that read `X-Forwarded-For`.
pub const PROXY: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

/// Answers 200.
pub fn inner() -> Service {
    BoxCloneSyncService::new(service_fn(async |_: Request<Body>| {
        Ok::<_, Infallible>(Response::new(Body::empty()))
    }))
}

pub fn layered<L>(layer: &L) -> Service
where
    L: Layer<Service>,
    L::Service: tower::Service<Request<Body>, Response = Response<Body>, Error = Infallible>
        + Clone
        + Send
        + Sync
        + 'static,
    <L::Service as tower::Service<Request<Body>>>::Future: Send + 'static,
{
    BoxCloneSyncService::new(layer.layer(inner()))
}

/// Returns a request with the address of its peer where each of the libraries looks for it.
pub fn request(peer: Option<IpAddr>) -> Request<Body> {
    let mut request = Request::new(Body::empty());
    if let Some(peer) = peer {
        let peer = SocketAddr::new(peer, 40_000);
        request.extensions_mut().insert(ConnectInfo(peer));
        request.extensions_mut().insert(peer);
    }
    request
}

pub fn call(service: &Service, request: Request<Body>) -> Response<Body> {
    let Ok(response) = futures_executor::block_on(service.clone().oneshot(request));
    response
}

/// Returns the seconds of `Retry-After`.
pub fn retry_after(response: &Response<Body>) -> Option<Duration> {
    let text = response.headers().get(RETRY_AFTER)?.to_str().ok()?;
    text.parse().ok().map(Duration::from_secs)
}

/// Asks a service as clients with their own addresses do.
pub fn budget(service: Service) -> Budget {
    Box::new(move |client, cost| {
        assert_eq!(cost, 1, "a request has no cost of its own");
        let response = call(&service, request(Some(client)));
        match response.status() {
            StatusCode::OK => Answer::Admitted,
            StatusCode::TOO_MANY_REQUESTS => Answer::Refused(retry_after(&response)),
            other => panic!("expected 200 or 429, found {other}"),
        }
    })
}
