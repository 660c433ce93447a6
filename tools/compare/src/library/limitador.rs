use std::{collections::HashMap, net::IpAddr, sync::Arc, time::Duration};

use limitador::{
    CheckResult, RateLimiter,
    limit::{Context, Limit},
};

use super::{Both, Budget, Library, Live, Rule, Shared};
use crate::answer::Answer;

pub struct Limitador;

const NAMESPACE: &str = "compare";

/// The clients for which an unlimited number of keys is meant: its constructor wants a number.
const MANY: usize = 1_000_000;

/// A limit of each client, for calls with this condition.
fn limit(rule: Rule, condition: Option<&str>) -> Limit {
    let conditions = condition.map(|text| text.try_into().expect("a condition"));
    let variables = vec!["client".try_into().expect("a variable")];
    let conditions: Vec<_> = conditions.into_iter().collect();
    // It counts in whole seconds.
    let seconds = rule.period.as_secs_f64().ceil() as u64;
    Limit::new(NAMESPACE, rule.units.into(), seconds, conditions, variables)
}

fn context(client: IpAddr, others: &str) -> Context<'static> {
    let values = [
        ("client", client.to_string()),
        ("others", others.to_owned()),
    ];
    let values: HashMap<_, _> = values.map(|(name, value)| (name.to_owned(), value)).into();
    values.into()
}

/// Returns what a client is told: the header `X-RateLimit-Reset`.
fn answer(mut result: CheckResult) -> Answer {
    if !result.limited {
        return Answer::Admitted;
    }
    let headers = result.response_header();
    let reset = headers
        .get("X-RateLimit-Reset")
        .map(|text| text.parse().expect("seconds"));
    Answer::Refused(reset.map(Duration::from_secs))
}

fn ask(limiter: &RateLimiter, client: IpAddr, others: &str, cost: u32) -> Answer {
    let context = context(client, others);
    let result = limiter.check_rate_limited_and_update(&NAMESPACE.into(), &context, cost.into());
    answer(result.expect("an answer"))
}

fn limiter(rule: Rule, keys: Option<usize>) -> Arc<RateLimiter> {
    let limiter = RateLimiter::new(keys.unwrap_or(MANY) as u64);
    limiter.add_limit(limit(rule, None));
    Arc::new(limiter)
}

impl Library for Limitador {
    fn package(&self) -> &'static str {
        "limitador"
    }

    fn minimal(&self) -> &'static str {
        "default-features = false"
    }

    fn budget(&self, rule: Rule, keys: Option<usize>) -> Budget {
        let limiter = limiter(rule, keys);
        Box::new(move |client, cost| ask(&limiter, client, "no", cost))
    }

    fn weighted(&self, rule: Rule) -> Option<Budget> {
        Some(self.budget(rule, None))
    }

    fn both(&self, first: Rule, second: Rule) -> Option<Both> {
        let limiter = limiter(first, None);
        limiter.add_limit(limit(second, Some("others == 'yes'")));
        let same = Arc::clone(&limiter);
        Some(Both {
            both: Box::new(move |client, cost| ask(&limiter, client, "yes", cost)),
            first: Box::new(move |client, cost| ask(&same, client, "no", cost)),
        })
    }

    fn corrected(&self, rule: Rule, client: IpAddr, estimated: u32, actual: u32) -> Option<Budget> {
        let limiter = limiter(rule, None);
        let (namespace, context) = (NAMESPACE.into(), context(client, "no"));
        let reserved = limiter.reserve(&namespace, &context, estimated.into(), None);
        let id = reserved
            .expect("an answer")
            .reservation_id
            .expect("a reservation");
        let committed = limiter.commit_reservation(&namespace, &context, Some(&id), actual.into());
        assert!(committed.expect("an answer").reservation_released);
        Some(Box::new(move |client, cost| {
            ask(&limiter, client, "no", cost)
        }))
    }

    fn live(&self, rule: Rule) -> Option<Live> {
        let limiter = limiter(rule, None);
        let same = Arc::clone(&limiter);
        Some(Live {
            budget: Box::new(move |client, cost| ask(&limiter, client, "no", cost)),
            change: Box::new(move |rule| {
                same.configure_with([limit(rule, None)]).expect("a change");
            }),
        })
    }

    fn shared(&self, _redis: &str, _rule: Rule) -> Shared {
        Shared::NotRun
    }

    fn algorithms(&self, rule: Rule) -> Vec<(&'static str, Budget)> {
        vec![("fixed window", self.budget(rule, None))]
    }
}
