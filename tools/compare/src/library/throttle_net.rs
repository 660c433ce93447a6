use std::{
    future::{Future, poll_fn},
    net::IpAddr,
    pin::pin,
    sync::Arc,
    task::Poll,
};

use throttle_net::{
    Clock, Decision, Eviction, Hybrid, ManualClock, PerKey, SlidingWindowLog, Throttle,
    tower::ThrottleLayer,
};
use tower::{Layer, Service, ServiceExt, service_fn};

use super::{Both, Budget, Library, Mocked, Rule};
use crate::{answer::Answer, clients::client, runtime};

pub struct ThrottleNet;

fn throttle(rule: Rule) -> Throttle {
    Throttle::per_duration(rule.units, rule.period)
}

fn per_key(rule: Rule) -> PerKey<IpAddr> {
    PerKey::per_duration(rule.units, rule.period)
}

fn answer(admitted: bool, decision: impl FnOnce() -> Decision) -> Answer {
    if admitted {
        return Answer::Admitted;
    }
    match decision() {
        Decision::Impossible => Answer::Never,
        decision => Answer::Refused(decision.retry_after()),
    }
}

fn ask<C: Clock + 'static>(limiter: PerKey<IpAddr, C>) -> Budget {
    Box::new(move |client, cost| {
        let admitted = limiter.try_acquire_with_cost(&client, cost);
        answer(admitted, || limiter.peek(&client, cost))
    })
}

impl Library for ThrottleNet {
    fn package(&self) -> &'static str {
        "throttle-net"
    }

    fn minimal(&self) -> &'static str {
        r#"features = ["tower"]"#
    }

    fn budget(&self, rule: Rule, keys: Option<usize>) -> Budget {
        let limiter = per_key(rule);
        ask(match keys {
            Some(keys) => limiter.with_eviction(Eviction::capacity(keys)),
            None => limiter,
        })
    }

    fn layer(&self, rule: Rule) -> Option<Box<dyn Fn() -> Budget>> {
        let layer = ThrottleLayer::new(throttle(rule));
        Some(Box::new(move || {
            let runtime = runtime::current_thread();
            let mut service = layer.layer(service_fn(async |()| Ok::<_, std::io::Error>(())));
            Box::new(move |_, _| {
                runtime.block_on(async {
                    let mut ready = pin!(service.ready());
                    let ready = poll_fn(|context| Poll::Ready(ready.as_mut().poll(context)));
                    match ready.await {
                        Poll::Ready(service) => {
                            let service = service.expect("a service");
                            service.call(()).await.expect("an answer");
                            Answer::Admitted
                        }
                        Poll::Pending => Answer::Refused(None),
                    }
                })
            })
        }))
    }

    fn weighted(&self, rule: Rule) -> Option<Budget> {
        Some(self.budget(rule, None))
    }

    fn both(&self, first: Rule, second: Rule) -> Option<Both> {
        let first = Arc::new(throttle(first));
        let shared: Arc<Throttle> = Arc::clone(&first);
        let hybrid = Hybrid::builder()
            .shared(shared)
            .limiter(throttle(second))
            .build();
        Some(Both {
            both: Box::new(move |_, cost| {
                answer(hybrid.try_acquire_with_cost(cost), || hybrid.peek(cost))
            }),
            first: Box::new(move |_, cost| {
                answer(first.try_acquire_with_cost(cost), || first.peek(cost))
            }),
        })
    }

    fn corrected(&self, rule: Rule, client: IpAddr, estimated: u32, actual: u32) -> Option<Budget> {
        let limiter = per_key(rule);
        assert!(limiter.try_acquire_with_cost(&client, estimated));
        limiter.refund(&client, estimated - actual);
        Some(ask(limiter))
    }

    fn waiting(&self, rule: Rule) -> Option<Box<dyn FnMut()>> {
        let (runtime, limiter) = (runtime::current_thread(), per_key(rule));
        Some(Box::new(move || {
            runtime
                .block_on(limiter.acquire(&client(0)))
                .expect("a unit");
        }))
    }

    fn mocked(&self, rule: Rule) -> Option<Mocked> {
        let clock = Arc::new(ManualClock::new());
        let limiter = per_key(rule).with_clock(Arc::clone(&clock));
        Some(Mocked {
            budget: ask(limiter),
            advance: Box::new(move |by| clock.advance(by)),
        })
    }

    fn algorithms(&self, rule: Rule) -> Vec<(&'static str, Budget)> {
        let log = SlidingWindowLog::new(rule.units, rule.period);
        let log: Budget =
            Box::new(move |_, cost| answer(log.try_acquire_with_cost(cost), || log.peek(cost)));
        vec![
            ("token bucket", self.budget(rule, None)),
            ("sliding log", log),
        ]
    }
}
