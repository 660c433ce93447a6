//! The span of a decision that is not ready at once.

use std::{convert::Infallible, pin::pin};

use futures_util::poll;
use http::{Request, Response};
use tollgate::{
    AnyRule, Limit, RateLimitLayer,
    store::{Backend, BoxStore, Store, StoreExt, driver::delegate},
    testing::{Fault, Faulty},
};
use tower::{Layer, ServiceExt, service_fn, util::BoxCloneService};
use tracing::Level;

use crate::{
    requests::{Memory, Service, memory},
    subscriber::Trace,
};

/// A store in memory that pretends to be at an address.
struct At(Option<&'static str>, Memory);

impl Backend for At {
    type Error = Infallible;

    fn address(&self) -> Option<&str> {
        self.0
    }
}

impl Store<AnyRule> for At {
    type Answer = <Memory as Store<AnyRule>>::Answer;
    type Done = <Memory as Store<AnyRule>>::Done;

    delegate!(Store<AnyRule>, self => self.1; calls);
}

/// Returns a service behind two limits, whose inner service logs that it is called.
fn service(store: BoxStore<AnyRule, Infallible>) -> Service {
    let rule = |text: &str| text.parse::<AnyRule>().unwrap();
    let layer = RateLimitLayer::new(rule("token-bucket 1/1h"))
        .named("api")
        .also(Limit::new(rule("token-bucket 9/1h")).named("total"))
        .store(store);
    let inner = service_fn(async |_: Request<()>| {
        tracing::info!("called");
        Ok(Response::new(String::new()))
    });
    BoxCloneService::new(layer.layer(inner))
}

/// Returns a store whose answers are pending for two polls.
fn late(address: Option<&'static str>) -> BoxStore<AnyRule, Infallible> {
    let faulty = Faulty::new(At(address, memory()));
    faulty.faults().always(Fault::Late(2));
    faulty.fail_closed().boxed()
}

#[tokio::test]
async fn a_remote_decision_has_a_span_that_is_entered_by_each_poll_and_closed_with_the_answer() {
    for address in [Some("127.0.0.1:6379"), None] {
        let (trace, _guard) = Trace::start(Level::DEBUG);
        let service = service(late(address));
        let response = service.clone().oneshot(Request::new(())).await.unwrap();
        assert_eq!(response.status(), 200);
        let records = trace.take();
        let steps = [
            "new 1", "enter 1", "exit 1", "enter 1", "exit 1", "enter 1", "exit 1", "close 1",
            "called",
        ];
        assert_eq!(records.steps, steps);
        let [span] = &records.spans[..] else {
            panic!("{:?}", records.spans);
        };
        let mut expected = vec![
            ("level", "DEBUG"),
            ("name", "tollgate.decide"),
            ("policies", "api, total"),
        ];
        expected.extend(address.map(|address| ("address", address)));
        expected.sort();
        let fields: Vec<_> = span
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        assert_eq!(fields, expected);

        // A refusal has a span of its own.
        let response = service.clone().oneshot(Request::new(())).await.unwrap();
        assert_eq!(response.status(), 429);
        let steps = trace.take().steps;
        assert_eq!(steps.first().unwrap(), "new 2");
        assert_eq!(steps.last().unwrap(), "close 2");
        assert_eq!(steps.len(), 8);
    }
}

#[tokio::test]
async fn a_request_that_is_dropped_closes_its_span() {
    let (trace, _guard) = Trace::start(Level::DEBUG);
    let service = service(late(None));
    {
        let mut call = pin!(service.oneshot(Request::new(())));
        assert!(poll!(call.as_mut()).is_pending());
    }
    assert_eq!(
        trace.take().steps,
        ["new 1", "enter 1", "exit 1", "close 1"]
    );
}

#[tokio::test]
async fn a_store_in_memory_has_no_span() {
    let (trace, _guard) = Trace::start(Level::TRACE);
    let service = service(memory().boxed());
    for _ in 0..3 {
        service.clone().oneshot(Request::new(())).await.unwrap();
    }
    let records = trace.take();
    assert!(records.spans.is_empty(), "{:?}", records.spans);
    assert_eq!(records.steps, ["called"]);
}

#[tokio::test]
async fn a_span_that_nobody_reads_is_not_opened() {
    let (trace, _guard) = Trace::start(Level::INFO);
    let service = service(late(None));
    service.clone().oneshot(Request::new(())).await.unwrap();
    assert_eq!(trace.take().steps, ["called"]);
}
