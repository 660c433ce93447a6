//! What an operator must hear once.
#![cfg(feature = "tracing")]

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
};

use http::{Request, Response, StatusCode};
use tollgate::{RateLimitLayer, TokenBucket, key::PeerIp};
use tower::{Layer, ServiceExt, service_fn};
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

/// Keeps the messages of all events.
#[derive(Clone, Default)]
struct Messages(Arc<Mutex<Vec<String>>>);

impl Visit for Messages {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            self.0.lock().unwrap().push(format!("{value:?}"));
        }
    }
}

impl Subscriber for Messages {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// A forgotten `into_make_service_with_connect_info` is answered with 500, and one line names it.
#[tokio::test(flavor = "current_thread")]
async fn a_missing_peer_is_logged_once_by_name() {
    let messages = Messages::default();
    let _guard = tracing::subscriber::set_default(messages.clone());
    let service = RateLimitLayer::new(TokenBucket::per_second(1))
        .key(PeerIp::new())
        .layer(service_fn(async |_: Request<()>| {
            Ok::<_, Infallible>(Response::new(String::new()))
        }));
    for _ in 0..3 {
        let response = service.clone().oneshot(Request::new(())).await.unwrap();
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
    }
    let messages = messages.0.lock().unwrap();
    assert_eq!(messages.len(), 1, "{messages:?}");
    assert!(messages[0].contains("into_make_service_with_connect_info::<SocketAddr>()"));
}
