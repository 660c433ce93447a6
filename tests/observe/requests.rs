//! Layers with one and two limits over every kind of store, and requests to them.

use std::convert::Infallible;

use http::{Request, Response, StatusCode};
use tollgate::{
    AnyRule, Limit, RateLimitLayer,
    key::{Extracted, Key, KeyExtractor, MissingKey},
    observe::Observer,
    store::{BoxStore, FailureMode, Local, LocalBuilder, OnFailure, StoreExt},
    testing::{Fault, Faults, Faulty},
    time::TokioClock,
};
use tower::{Layer, ServiceExt, service_fn, util::BoxCloneService};

/// A store in memory, on tokio's time.
pub(crate) type Memory = Local<AnyRule, TokioClock>;

pub(crate) type Service = BoxCloneService<Request<()>, Response<String>, Infallible>;

/// The place of the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The answer is there at once.
    Memory,
    /// The answer is pending for two polls.
    Remote,
}

pub(crate) const PLACES: [Place; 2] = [Place::Memory, Place::Remote];

pub(crate) fn memory() -> Memory {
    LocalBuilder::new().clock(TokioClock::new()).build()
}

/// Returns a store, and the switch of its faults.
pub(crate) fn store(
    place: Place,
    on_failure: FailureMode,
) -> (BoxStore<AnyRule, Infallible>, Faults) {
    let faulty = Faulty::new(memory());
    let faults = faulty.faults();
    if place == Place::Remote {
        faults.always(Fault::Late(2));
    }
    let store: OnFailure<_> = match on_failure {
        FailureMode::Open => faulty.fail_open(),
        _ => faulty.fail_closed(),
    };
    (store.boxed(), faults)
}

/// Reads the key from the header of this name.
#[derive(Clone)]
struct From(&'static str);

impl<B> KeyExtractor<Request<B>> for From {
    fn extract(&self, request: &Request<B>) -> Result<Extracted, MissingKey> {
        match request.headers().get(self.0).map(|value| value.as_bytes()) {
            Some(b"exempt") => Ok(Extracted::Exempt),
            Some(b"mistake") => Err(MissingKey::misconfigured("a mistake of the test")),
            Some(name) => Ok(Extracted::Key(Key::from(
                std::str::from_utf8(name).unwrap(),
            ))),
            None => Err(MissingKey::new("no header")),
        }
    }
}

/// Returns a service behind limits named `one` and `two`, which count by the headers of these
/// names.
pub(crate) fn service<O>(
    rules: &[&str],
    store: BoxStore<AnyRule, Infallible>,
    observer: O,
) -> Service
where
    O: Observer + Clone + Send + Sync + 'static,
{
    let inner = service_fn(async |_: Request<()>| Ok(Response::new("hello".to_owned())));
    let rule = |at: usize| rules[at].parse::<AnyRule>().unwrap();
    let layer = RateLimitLayer::new(rule(0)).named("one").key(From("one"));
    match rules.len() {
        1 => BoxCloneService::new(layer.store(store).observe(observer).layer(inner)),
        2 => {
            let two = Limit::new(rule(1)).named("two").key(From("two"));
            BoxCloneService::new(layer.also(two).store(store).observe(observer).layer(inner))
        }
        more => panic!("{more} limits"),
    }
}

/// Returns a request with the headers `one` and `two`; `-` is none.
pub(crate) fn request(one: &str, two: &str) -> Request<()> {
    let mut request = Request::builder();
    for (name, value) in [("one", one), ("two", two)] {
        if value != "-" {
            request = request.header(name, value);
        }
    }
    request.body(()).unwrap()
}

pub(crate) async fn send(service: &Service, one: &str, two: &str) -> StatusCode {
    let response = service.clone().oneshot(request(one, two)).await;
    response.unwrap().status()
}
