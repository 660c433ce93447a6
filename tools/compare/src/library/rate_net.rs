use std::sync::Arc;

use clock_lib::{Clock, ManualClock};
use rate_net::{
    Algorithm, AsyncLimiter, Decision, Eviction, Quota, RateLimiter,
    tower::{ForwardedFor, PeerIp, RateLimitLayer},
};
use tower::Layer;

use super::{Both, Budget, Library, Mocked, Rule};
use crate::{
    answer::Answer,
    service::{self, PROXY, Service},
};

pub struct RateNet;

fn quota(rule: Rule) -> Quota {
    let quota = Quota::rate(rule.units, rule.period).expect("a rule of more than nothing");
    quota.with_burst(rule.units)
}

fn layer(rule: Rule) -> RateLimitLayer<PeerIp> {
    let limiter = RateLimiter::with_quota(quota(rule));
    RateLimitLayer::new(limiter, PeerIp::default())
        .with_policy("default")
        .with_headers_on_success(true)
}

fn answer(decision: Decision) -> Answer {
    if decision.is_allow() {
        Answer::Admitted
    } else if decision.is_impossible() {
        Answer::Never
    } else {
        Answer::Refused(decision.retry_after())
    }
}

fn ask<C: Clock + Clone + 'static>(limiter: RateLimiter<C>) -> Budget {
    Box::new(move |client, cost| answer(limiter.check_n(client, cost)))
}

impl Library for RateNet {
    fn package(&self) -> &'static str {
        "rate-net"
    }

    fn minimal(&self) -> &'static str {
        r#"features = ["tower"]"#
    }

    fn budget(&self, rule: Rule, keys: Option<usize>) -> Budget {
        match keys {
            Some(keys) => {
                let limiter = RateLimiter::with_quota(quota(rule));
                ask(limiter.with_eviction(Eviction::capacity(keys)))
            }
            None => service::budget(service::layered(&layer(rule))),
        }
    }

    fn layer(&self, rule: Rule) -> Option<Box<dyn Fn() -> Budget>> {
        let layer = layer(rule);
        Some(Box::new(move || service::budget(service::layered(&layer))))
    }

    fn http(&self, rule: Rule) -> Option<Service> {
        Some(service::layered(&layer(rule)))
    }

    fn behind_proxy(&self, rule: Rule) -> Option<Service> {
        let limiter = RateLimiter::with_quota(quota(rule));
        let key = ForwardedFor::trusting(1).only_from(PROXY, 32);
        Some(service::layered(&RateLimitLayer::new(limiter, key)))
    }

    fn weighted(&self, rule: Rule) -> Option<Budget> {
        Some(ask(RateLimiter::with_quota(quota(rule))))
    }

    fn both(&self, first: Rule, second: Rule) -> Option<Both> {
        let first = layer(first);
        let both = first.layer(service::layered(&layer(second)));
        Some(Both {
            both: service::budget(Service::new(both)),
            first: service::budget(service::layered(&first)),
        })
    }

    fn waiting(&self, rule: Rule) -> Option<Box<dyn FnMut()>> {
        let runtime = crate::runtime::current_thread();
        let limiter = AsyncLimiter::new(RateLimiter::with_quota(quota(rule)));
        Some(Box::new(move || {
            runtime
                .block_on(limiter.try_until_ready("client"))
                .expect("a unit");
        }))
    }

    fn mocked(&self, rule: Rule) -> Option<Mocked> {
        let clock = Arc::new(ManualClock::new());
        let limiter = RateLimiter::with_quota(quota(rule)).with_clock(Arc::clone(&clock));
        Some(Mocked {
            budget: ask(limiter),
            advance: Box::new(move |by| clock.advance(by)),
        })
    }

    fn algorithms(&self, rule: Rule) -> Vec<(&'static str, Budget)> {
        let named = [
            ("token bucket", Algorithm::TokenBucket),
            ("leaky bucket", Algorithm::LeakyBucket),
            ("fixed window", Algorithm::FixedWindow),
            ("sliding log", Algorithm::SlidingWindowLog),
            ("sliding window", Algorithm::SlidingWindowCounter),
        ];
        let limits = named.map(|(name, algorithm)| {
            (
                name,
                ask(RateLimiter::with_quota(quota(rule)).with_algorithm(algorithm)),
            )
        });
        limits.into()
    }
}
