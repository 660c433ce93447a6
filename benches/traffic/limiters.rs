//! The contenders: stores of ours, and their peers.

use std::{fmt::Debug, num::NonZeroU32, str::FromStr};

use governor::{DefaultKeyedRateLimiter, Quota};
use rate_net::{Eviction, RateLimiter};
use tollgate::{
    Cascade, FixedWindow, SlidingWindow, TokenBucket,
    algorithm::Algorithm,
    store::{Local, LocalBuilder},
};

use crate::{
    common::{
        decider::{Decider, Part},
        floor::Floor,
        keys::{BenchKey, Keys},
    },
    report::Turn,
    rules::{Kind, Limit, Rule},
};

/// The columns of the peers.
pub(crate) const PEERS: [&str; 4] = [GOVERNOR, RATE_NET, FLOOR, BUCKET];
const GOVERNOR: &str = "governor";
const RATE_NET: &str = "rate-net";
const FLOOR: &str = "the floor";
/// A token bucket of ours, beside another rule.
pub(crate) const BUCKET: &str = "ours, token bucket";

/// The default capacity of a store of ours.
pub(crate) const CAPACITY: usize = 1_000_000;

/// A contender with its keys loaded.
pub(crate) struct Limiter<'a> {
    /// One of [`PEERS`], or of ours the capacity.
    pub(crate) name: String,
    /// Returns the number of new keys that a store of ours has inserted.
    pub(crate) inserted: Option<Box<dyn Fn() -> u64>>,
    pub(crate) decider: Decider<'a>,
}

impl Limiter<'_> {
    /// Takes a turn, as [`Decider::turn`] does.
    pub(crate) fn turn(&self, part: &Part, round: usize) -> Turn {
        let inserted = || self.inserted.as_ref().map_or(0, |inserted| inserted());
        let before = inserted();
        let (cost, admitted) = self.decider.turn(part, round);
        Turn {
            cost,
            decisions: part.threads * part.each,
            admitted,
            inserted: inserted() - before,
        }
    }
}

/// Makes stores of ours with these capacities and all peers that support the rule, with room for so
/// many keys, and loads the keys into each.
pub(crate) fn limiters<'a, K: BenchKey>(
    rule: &Rule,
    keys: &'a Keys<K>,
    capacities: &[usize],
    room: usize,
) -> Vec<Limiter<'a>> {
    let mut all: Vec<_> = capacities
        .iter()
        .map(|capacity| match rule.kind {
            Kind::TokenBucket => ours(keys, bucket(rule.name), *capacity),
            Kind::FixedWindow => ours(keys, parsed::<FixedWindow>(rule.name), *capacity),
            Kind::SlidingWindow => ours(keys, parsed::<SlidingWindow>(rule.name), *capacity),
            Kind::Cascade => ours(keys, parsed::<Cascade>(rule.name), *capacity),
            Kind::Pair(a, b) => {
                let pair = (bucket(a), bucket(b));
                ours(keys, pair, *capacity)
            }
        })
        .collect();
    let mut peer = |name: &str, decider| {
        all.push(Limiter {
            name: name.to_owned(),
            inserted: None,
            decider,
        })
    };
    if let Kind::TokenBucket = rule.kind {
        peer(GOVERNOR, governor(keys, rule.limit));
    }
    if let Some(algorithm) = rate_net_algorithm(rule.kind) {
        peer(RATE_NET, rate_net(keys, rule.limit, algorithm, room));
    }
    if let Kind::TokenBucket = rule.kind {
        peer(FLOOR, floor(keys, rule.limit, room));
    }
    if let Some(text) = rule.beside {
        let store = LocalBuilder::new().build();
        let decider = Decider::ours(keys, bucket(text), store);
        peer(BUCKET, decider);
    }
    all
}

/// Writes a number of keys in thousands or millions.
pub(crate) fn count_text(count: usize) -> String {
    match count {
        1_000_000.. => format!("{} M", count / 1_000_000),
        1_000.. => format!("{} k", count / 1_000),
        _ => count.to_string(),
    }
}

/// Writes a number of threads.
pub(crate) fn threads_text(threads: usize) -> String {
    match threads {
        1 => "1 thread".to_owned(),
        _ => format!("{threads} threads"),
    }
}

/// Reads the rule of a token bucket, whose name is left out.
fn bucket(text: &str) -> TokenBucket {
    parsed(&format!("token-bucket {text}"))
}

fn parsed<A: FromStr<Err: Debug>>(text: &str) -> A {
    text.parse().unwrap()
}

fn ours<'a, A, K>(keys: &'a Keys<K>, rule: A, capacity: usize) -> Limiter<'a>
where
    A: Algorithm,
    K: BenchKey,
{
    let store: Local<A> = LocalBuilder::new().capacity(capacity).build();
    let counted = store.clone();
    Limiter {
        name: count_text(capacity),
        inserted: Some(Box::new(move || counted.stats().inserted)),
        decider: Decider::ours(keys, rule, store),
    }
}

fn governor<'a, K: BenchKey>(keys: &'a Keys<K>, limit: Limit) -> Decider<'a> {
    let [amount, burst] = [limit.amount, limit.burst].map(|units| NonZeroU32::new(units).unwrap());
    let quota = match limit.period.as_secs() {
        1 => Quota::per_second(amount),
        60 => Quota::per_minute(amount),
        3600 => Quota::per_hour(amount),
        other => panic!("a period of {other} s: expected a second, a minute or an hour"),
    };
    let limiter = DefaultKeyedRateLimiter::<K>::dashmap(quota.allow_burst(burst));
    Decider::new(keys, move |key| limiter.check_key(key).is_ok())
}

fn rate_net_algorithm(kind: Kind) -> Option<rate_net::Algorithm> {
    match kind {
        Kind::TokenBucket => Some(rate_net::Algorithm::TokenBucket),
        Kind::FixedWindow => Some(rate_net::Algorithm::FixedWindow),
        Kind::SlidingWindow => Some(rate_net::Algorithm::SlidingWindowCounter),
        Kind::Pair(..) | Kind::Cascade => None,
    }
}

fn rate_net<'a, K: BenchKey>(
    keys: &'a Keys<K>,
    limit: Limit,
    algorithm: rate_net::Algorithm,
    room: usize,
) -> Decider<'a> {
    let builder = RateLimiter::builder()
        .algorithm(algorithm)
        .quota(limit.amount, limit.period)
        .eviction(Eviction::capacity(2 * room.max(1000)));
    let limiter = match algorithm {
        rate_net::Algorithm::TokenBucket => builder.burst(limit.burst).build(),
        _ => builder.build(),
    };
    Decider::new(keys, move |key: &K| key.rate_net(&limiter))
}

fn floor<'a, K: BenchKey>(keys: &'a Keys<K>, limit: Limit, room: usize) -> Decider<'a> {
    let interval = limit.interval().as_nanos() as u64;
    let floor = Floor::new(room, interval, limit.burst.into());
    Decider::new(keys, move |key: &K| {
        floor.decide(|hasher| key.floor(hasher))
    })
}
