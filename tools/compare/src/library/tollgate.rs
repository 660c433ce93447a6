use std::net::IpAddr;

use tollgate::{
    Limiter, LiveRule, Policy,
    algorithm::Algorithm,
    pace::Pacer,
    prelude::*,
    time::{Clock, ManualClock, SystemClock, Timestamp},
};

use super::{Both, Budget, Library, Live, Mocked, Rule, Shared};
use crate::{
    answer::Answer,
    runtime,
    service::{self, PROXY, Service},
};

pub struct Tollgate;

fn quota(rule: Rule) -> Quota {
    Quota::new(rule.units.into(), rule.period)
}

fn bucket(rule: Rule) -> TokenBucket {
    TokenBucket::new(quota(rule))
}

/// A macro, because the types of a layer have long names.
macro_rules! layer {
    ($rule:expr) => {
        RateLimitLayer::new(bucket($rule)).key(PeerIp::new())
    };
}

fn answer(decision: &tollgate::Decision) -> Answer {
    if decision.is_admitted() {
        Answer::Admitted
    } else if decision.is_oversized() {
        Answer::Never
    } else {
        Answer::Refused(decision.retry_after())
    }
}

fn cost(units: u32) -> Cost {
    Cost::new(units.into()).expect("a cost of more than nothing")
}

type Memory<R, C> = Limiter<R, Local<R, C>>;

fn ask<R: Algorithm, C: Clock + 'static>(limiter: Memory<R, C>) -> Budget {
    Box::new(move |client, units| answer(&limiter.check(client, cost(units)).at_once()))
}

fn limiter<R: Algorithm>(rule: R) -> Memory<R, SystemClock> {
    Limiter::new(Policy::new("compare"), rule, Local::new())
}

impl Library for Tollgate {
    fn package(&self) -> &'static str {
        "tollgate"
    }

    fn minimal(&self) -> &'static str {
        r#"features = ["axum"]"#
    }

    fn budget(&self, rule: Rule, keys: Option<usize>) -> Budget {
        match keys {
            Some(keys) => {
                let store = LocalBuilder::new().capacity(keys).build();
                let limiter = Limiter::new(Policy::new("compare"), bucket(rule), store);
                ask(limiter)
            }
            None => service::budget(service::layered(&layer!(rule))),
        }
    }

    fn layer(&self, rule: Rule) -> Option<Box<dyn Fn() -> Budget>> {
        let layer = layer!(rule);
        Some(Box::new(move || service::budget(service::layered(&layer))))
    }

    fn http(&self, rule: Rule) -> Option<Service> {
        Some(service::layered(&layer!(rule)))
    }

    fn behind_proxy(&self, rule: Rule) -> Option<Service> {
        let key = ForwardedFor::trusting([PROXY]);
        Some(service::layered(
            &RateLimitLayer::new(bucket(rule)).key(key),
        ))
    }

    fn weighted(&self, rule: Rule) -> Option<Budget> {
        Some(ask(limiter(bucket(rule))))
    }

    fn both(&self, first: Rule, second: Rule) -> Option<Both> {
        let store = Local::new();
        let other = Limit::new(bucket(second))
            .named("second")
            .key(PeerIp::new());
        let both = layer!(first)
            .named("first")
            .store(store.clone())
            .also(other);
        let first = layer!(first).named("first").store(store);
        Some(Both {
            both: service::budget(service::layered(&both)),
            first: service::budget(service::layered(&first)),
        })
    }

    fn corrected(&self, rule: Rule, client: IpAddr, estimated: u32, actual: u32) -> Option<Budget> {
        let limiter = limiter(bucket(rule));
        let mut decision = limiter.check(client, cost(estimated)).at_once();
        let charge = decision.take_charge().expect("a charge");
        limiter
            .settle(client, charge, actual.into())
            .expect("its own charge")
            .at_once();
        Some(ask(limiter))
    }

    fn live(&self, rule: Rule) -> Option<Live> {
        let rule = LiveRule::new(bucket(rule));
        let layer = RateLimitLayer::from(Limit::live(&rule).key(PeerIp::new()));
        Some(Live {
            budget: service::budget(service::layered(&layer)),
            change: Box::new(move |other| rule.set(bucket(other)).expect("a rule that fits")),
        })
    }

    fn waiting(&self, rule: Rule) -> Option<Box<dyn FnMut()>> {
        let (runtime, pacer) = (runtime::current_thread(), Pacer::new(bucket(rule)));
        Some(Box::new(move || {
            runtime.block_on(pacer.until_ready()).expect("a unit");
        }))
    }

    fn shared(&self, redis: &str, rule: Rule) -> Shared {
        Shared::Run([in_redis(redis, rule), in_redis(redis, rule)])
    }

    fn mocked(&self, rule: Rule) -> Option<Mocked> {
        let clock = ManualClock::new(Timestamp::from_nanos(1 << 60));
        let store = LocalBuilder::new().clock(clock.clone()).build();
        let limiter = Limiter::new(Policy::new("compare"), bucket(rule), store);
        Some(Mocked {
            budget: ask(limiter),
            advance: Box::new(move |by| clock.advance(by)),
        })
    }

    fn algorithms(&self, rule: Rule) -> Vec<(&'static str, Budget)> {
        let quota = quota(rule);
        let named = [
            ("token bucket", format!("token-bucket {quota}")),
            (
                "leaky bucket",
                format!("leaky-bucket {quota} queue={}", rule.units - 1),
            ),
            ("fixed window", format!("fixed-window {quota}")),
            ("sliding window", format!("sliding-window {quota}")),
            ("sliding log", format!("sliding-log {quota}")),
            ("warm-up", "warm-up 3/s over=10s cold=3".to_owned()),
            (
                "spaced warm-up",
                format!("warm-up-spaced {quota} over=1h cold=3 max-wait=1s"),
            ),
            (
                "cascade",
                format!("cascade {quota} burst=2 > {quota} burst=1"),
            ),
            (
                "three-color",
                format!("three-color {quota} burst=1 peak=10/1h peak-burst=2"),
            ),
        ];
        let limits = named.map(|(name, text)| {
            let rule: AnyRule = text
                .parse()
                .unwrap_or_else(|error| panic!("{text}: {error}"));
            (name, ask(limiter(rule)))
        });
        limits.into()
    }
}

fn in_redis(url: &str, rule: Rule) -> Budget {
    let runtime = runtime::current_thread();
    let store = runtime
        .block_on(Redis::<TokenBucket>::connect(url))
        .expect("the server");
    let limiter = Limiter::new(Policy::new("compare"), bucket(rule), store);
    Box::new(move |client, units| {
        let decision = runtime.block_on(async { limiter.check(client, cost(units)).await });
        answer(&decision.expect("an answer"))
    })
}
