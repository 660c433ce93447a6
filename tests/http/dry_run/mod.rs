//! Limits on a dry run: their counts equal those of a model that runs each rule alone, and requests
//! do not notice them.

mod charges;
mod effects;
mod faults;
mod model;
mod oracle;
#[cfg(all(target_os = "linux", feature = "redis"))]
mod redis;
mod settings;
mod shares;

use std::convert::Infallible;

use futures_util::FutureExt;
use http::{Request, Response};
use tollgate::{
    AnyRule, Cost, Outcome,
    key::{Extracted, Key, KeyExtractor, MissingKey},
    store::{Local, LocalBuilder},
    time::ManualClock,
};
use tower::{Service, util::BoxCloneService};

/// A request as the limits see it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    client: Client,
    units: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Client {
    Known(u64),
    Exempt,
    Unknown,
}

/// The key of a call.
#[derive(Clone, Copy)]
pub(crate) struct ByClient;

impl KeyExtractor<Request<Call>> for ByClient {
    fn extract(&self, request: &Request<Call>) -> Result<Extracted, MissingKey> {
        match request.body().client {
            Client::Known(client) => Ok(Extracted::Key(Key::from(client))),
            Client::Exempt => Ok(Extracted::Exempt),
            Client::Unknown => Err(MissingKey::new("an unknown client")),
        }
    }
}

fn units(request: &Request<Call>) -> Cost {
    Cost::new(request.body().units).unwrap()
}

fn client(client: u64) -> Request<Call> {
    Request::new(Call {
        client: Client::Known(client),
        units: 1,
    })
}

fn rule(text: &str) -> AnyRule {
    text.parse().unwrap()
}

fn local(clock: &ManualClock) -> Local<AnyRule, ManualClock> {
    LocalBuilder::new().clock(clock.clone()).build()
}

/// A service of calls whose response has the outcome that its handler found.
type Calls = BoxCloneService<Request<Call>, Response<String>, Infallible>;

async fn handler(request: Request<Call>) -> Result<Response<String>, Infallible> {
    let mut response = Response::new("hello".to_owned());
    if let Some(outcome) = request.extensions().get::<Outcome>() {
        response.extensions_mut().insert(outcome.clone());
    }
    Ok(response)
}

/// Returns a service inside a layer.
macro_rules! service {
    ($layer:expr) => {
        tower::util::BoxCloneService::new(tower::Layer::layer(
            &$layer,
            tower::service_fn(crate::dry_run::handler),
        ))
    };
}
pub(crate) use service;

/// Returns the response of a service that answers at once.
fn call(service: &mut Calls, request: Request<Call>) -> Response<String> {
    let response = service.call(request).now_or_never();
    response.expect("an answer at once").unwrap()
}
