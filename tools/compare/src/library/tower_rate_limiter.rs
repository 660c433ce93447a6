use std::{
    future::{Ready, ready},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use http::{Request, StatusCode};
use redis::aio::MultiplexedConnection;
use tower::{Layer, ServiceExt};
use tower_rate_limiter::{
    IpKeyExtractor, LimitProvider, MemoryStore, RateLimitError, RateLimitLayer, RedisStore,
    TrustedProxyClientIpKeyExtractor,
};

use super::{Both, Budget, Library, Live, Rule, Shared};
use crate::{
    answer::Answer,
    runtime,
    service::{self, PROXY, Service},
};

pub struct TowerRateLimiter;

fn layer(rule: Rule) -> RateLimitLayer<IpKeyExtractor, MemoryStore> {
    RateLimitLayer::builder(IpKeyExtractor::new())
        .limit(rule.units.into())
        .window(rule.period)
        .with_store(MemoryStore::new())
        .build()
        .expect("a window of a millisecond or more")
}

/// A limit that can be set while the layer is in use.
#[derive(Clone)]
struct Settable(Arc<AtomicU64>);

impl LimitProvider for Settable {
    type Future = Ready<Result<u64, RateLimitError>>;

    fn limit<B>(&self, _request: &Request<B>) -> Self::Future {
        ready(Ok(self.0.load(Ordering::Relaxed)))
    }
}

async fn connect(url: &str) -> MultiplexedConnection {
    let client = redis::Client::open(url).expect("the URL of the server");
    client
        .get_multiplexed_async_connection()
        .await
        .expect("the server")
}

fn in_redis(url: &str, rule: Rule) -> Budget {
    let runtime = runtime::current_thread();
    let store = RedisStore::new(runtime.block_on(connect(url)));
    let layer = RateLimitLayer::builder(IpKeyExtractor::new())
        .limit(rule.units.into())
        .window(rule.period)
        .with_store(store)
        .build()
        .expect("a window of a millisecond or more");
    let service = service::layered(&layer);
    Box::new(move |client, _| {
        let call = service.clone().oneshot(service::request(Some(client)));
        let Ok(response) = runtime.block_on(call);
        match response.status() {
            StatusCode::OK => Answer::Admitted,
            StatusCode::TOO_MANY_REQUESTS => Answer::Refused(service::retry_after(&response)),
            other => panic!("expected 200 or 429, found {other}"),
        }
    })
}

impl Library for TowerRateLimiter {
    fn package(&self) -> &'static str {
        "tower-rate-limiter"
    }

    fn minimal(&self) -> &'static str {
        r#"features = ["axum"]"#
    }

    fn budget(&self, rule: Rule, _keys: Option<usize>) -> Budget {
        service::budget(service::layered(&layer(rule)))
    }

    fn layer(&self, rule: Rule) -> Option<Box<dyn Fn() -> Budget>> {
        let layer = layer(rule);
        Some(Box::new(move || service::budget(service::layered(&layer))))
    }

    fn http(&self, rule: Rule) -> Option<Service> {
        Some(service::layered(&layer(rule)))
    }

    fn behind_proxy(&self, rule: Rule) -> Option<Service> {
        let layer =
            RateLimitLayer::builder(TrustedProxyClientIpKeyExtractor::new(|ip| ip == PROXY))
                .limit(rule.units.into())
                .window(rule.period)
                .with_store(MemoryStore::new())
                .build();
        Some(service::layered(
            &layer.expect("a window of a millisecond or more"),
        ))
    }

    fn both(&self, first: Rule, second: Rule) -> Option<Both> {
        let first = layer(first);
        let both = first.layer(service::layered(&layer(second)));
        Some(Both {
            both: service::budget(Service::new(both)),
            first: service::budget(service::layered(&first)),
        })
    }

    fn live(&self, rule: Rule) -> Option<Live> {
        let limit = Arc::new(AtomicU64::new(rule.units.into()));
        let layer = RateLimitLayer::builder(IpKeyExtractor::new())
            .limit_provider(Settable(Arc::clone(&limit)))
            .window(rule.period)
            .with_store(MemoryStore::new())
            .build()
            .expect("a window of a millisecond or more");
        Some(Live {
            budget: service::budget(service::layered(&layer)),
            change: Box::new(move |rule| limit.store(rule.units.into(), Ordering::Relaxed)),
        })
    }

    fn shared(&self, redis: &str, rule: Rule) -> Shared {
        Shared::Run([in_redis(redis, rule), in_redis(redis, rule)])
    }

    fn algorithms(&self, rule: Rule) -> Vec<(&'static str, Budget)> {
        vec![("fixed window", self.budget(rule, None))]
    }
}
