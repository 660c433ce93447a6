use std::{net::IpAddr, num::NonZeroU32, time::Duration};

use governor::{
    Quota, RateLimiter,
    clock::{Clock, DefaultClock, FakeRelativeClock},
    middleware::NoOpMiddleware,
    state::keyed::{DefaultKeyedStateStore, KeyedStateStore},
};

use super::{Budget, Library, Mocked, Rule};
use crate::answer::Answer;

pub struct Governor;

pub fn quota(rule: Rule) -> Quota {
    let burst = NonZeroU32::new(rule.units).expect("a rule of more than nothing");
    let quota = Quota::with_period(rule.period / rule.units).expect("a period");
    quota.allow_burst(burst)
}

/// A limiter by any clock.
type ByClock<S, C> = RateLimiter<IpAddr, S, C, NoOpMiddleware<<C as Clock>::Instant>>;

fn ask<S, C>(limiter: &ByClock<S, C>, client: IpAddr, cost: u32) -> Answer
where
    S: KeyedStateStore<IpAddr>,
    C: Clock,
{
    let cost = NonZeroU32::new(cost).expect("a cost of more than nothing");
    match limiter.check_key_n(&client, cost) {
        Ok(Ok(())) => Answer::Admitted,
        Ok(Err(not_until)) => {
            Answer::Refused(Some(not_until.wait_time_from(limiter.clock().now())))
        }
        Err(_) => Answer::Never,
    }
}

impl Library for Governor {
    fn package(&self) -> &'static str {
        "governor"
    }

    fn minimal(&self) -> &'static str {
        ""
    }

    fn budget(&self, rule: Rule, _keys: Option<usize>) -> Budget {
        let limiter = RateLimiter::keyed(quota(rule));
        Box::new(move |client, cost| ask(&limiter, client, cost))
    }

    fn weighted(&self, rule: Rule) -> Option<Budget> {
        Some(self.budget(rule, None))
    }

    fn waiting(&self, rule: Rule) -> Option<Box<dyn FnMut()>> {
        let limiter: RateLimiter<IpAddr, DefaultKeyedStateStore<IpAddr>, DefaultClock> =
            RateLimiter::keyed(quota(rule));
        let client = crate::clients::client(0);
        Some(Box::new(move || {
            futures_executor::block_on(limiter.until_key_ready(&client));
        }))
    }

    fn mocked(&self, rule: Rule) -> Option<Mocked> {
        let clock = FakeRelativeClock::default();
        let state = DefaultKeyedStateStore::<IpAddr>::default();
        let limiter: ByClock<_, FakeRelativeClock> =
            RateLimiter::new(quota(rule), state, clock.clone());
        Some(Mocked {
            budget: Box::new(move |client, cost| ask(&limiter, client, cost)),
            advance: Box::new(move |by: Duration| clock.advance(by)),
        })
    }

    fn algorithms(&self, rule: Rule) -> Vec<(&'static str, Budget)> {
        vec![("GCRA", self.budget(rule, None))]
    }
}
