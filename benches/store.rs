//! Decisions of the store in memory beside those of `governor` and `rate-net`.
//!
//! All keys are loaded before, and their debts outlive the run. Contenders visit the same keys in the
//! same order, each thread a part of its own, and had them loaded in another order: else what one
//! allocates for a key would lie beside what the next visit needs.
#![allow(
    clippy::float_arithmetic,
    clippy::unwrap_used,
    reason = "a benchmark prints ratios, and stops where something is odd"
)]

mod common;

use std::{
    hint::black_box,
    net::{IpAddr, Ipv4Addr},
    num::NonZeroU32,
    ops::Range,
    sync::atomic::{AtomicUsize, Ordering},
};

use common::{
    Random,
    counting::{Counting, allocations, bytes_kept},
    race::{Contender, Mode, Race, Reads, Table},
    timing::together,
};
use governor::DefaultKeyedRateLimiter;
use rate_net::{Eviction, RateLimiter};
use tollgate::{
    Cost, Policy, TokenBucket,
    store::{Ask, Local, LocalBuilder},
};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const ROUNDS: usize = 21;

/// The limit that all contenders run: so many tokens per hour, and so many at once.
#[derive(Clone, Copy)]
struct Limit {
    per_hour: u32,
    burst: u32,
}

/// Decides on a range of the keys, and tells how many passed.
struct Decider<'a> {
    name: &'static str,
    load: Box<dyn Fn() -> usize + 'a>,
    decide: Box<dyn Fn(Range<usize>) -> usize + Sync + 'a>,
}

impl<'a> Decider<'a> {
    /// `decide` stands inside the loop, where the compiler sees it.
    fn new<K: Sync>(
        name: &'static str,
        keys: &'a [K],
        decide: impl Fn(&K) -> bool + Sync + Clone + 'a,
    ) -> Self {
        let one = decide.clone();
        let load = move || {
            let mut order: Vec<usize> = (0..keys.len()).collect();
            Random(4).shuffle(&mut order);
            order.into_iter().filter(|index| one(&keys[*index])).count()
        };
        let decide = move |range: Range<usize>| {
            keys[range]
                .iter()
                .filter(|key| decide(black_box(key)))
                .count()
        };
        Self {
            name,
            load: Box::new(load),
            decide: Box::new(decide),
        }
    }
}

fn ours(limit: Limit) -> (Policy, TokenBucket, Local<TokenBucket>) {
    let rule = TokenBucket::per_hour(limit.per_hour.into()).burst(limit.burst.into());
    (
        Policy::new("bench"),
        rule,
        LocalBuilder::new().capacity(1_000_000).build(),
    )
}

fn governors<K: std::hash::Hash + Eq + Clone>(limit: Limit) -> DefaultKeyedRateLimiter<K> {
    let quota = governor::Quota::per_hour(NonZeroU32::new(limit.per_hour).unwrap())
        .allow_burst(NonZeroU32::new(limit.burst).unwrap());
    DefaultKeyedRateLimiter::dashmap(quota)
}

fn rate_nets(limit: Limit) -> RateLimiter {
    RateLimiter::builder()
        .quota(limit.per_hour, std::time::Duration::from_secs(3600))
        .burst(limit.burst)
        .eviction(Eviction::capacity(2_000_000))
        .build()
}

/// How a race is run.
struct Setting {
    name: &'static str,
    threads: usize,
    /// What all decisions of the race must be, after the first one of each key.
    passes: bool,
    targets: &'static [(&'static str, f64)],
}

fn race(
    mode: &Mode,
    table: &mut Table,
    setting: &Setting,
    keys: usize,
    deciders: Vec<Decider<'_>>,
) {
    let Setting {
        name,
        threads,
        passes,
        targets,
    } = *setting;
    let each = mode.pick(250_000, 500).min(keys / threads);
    let contenders = deciders.into_iter().map(|Decider { name, load, decide }| {
        let (bytes, passed) = bytes_kept(load);
        assert!(
            if passes { passed == keys } else { passed <= 1 },
            "{name}: {passed} passed at first"
        );
        if passes && keys >= 1_000_000 {
            eprintln!("{name}: {} bytes per key", bytes / keys as i64);
        }
        let (allocations, _) = allocations(|| decide(0..each.min(1000)));
        let turn = move |round: usize| {
            let passed = AtomicUsize::new(0);
            let cost = together(threads, each, |thread| {
                let part = keys / threads;
                let begin = thread * part + round * each % (part - each + 1);
                passed.fetch_add(decide(begin..begin + each), Ordering::Relaxed);
            });
            let expected = if passes { threads * each } else { 0 };
            assert_eq!(passed.into_inner(), expected, "{name} passed");
            cost
        };
        Contender {
            name,
            allocations: allocations as f64 / each.min(1000) as f64,
            turn: Box::new(turn),
        }
    });
    let contenders = contenders.collect();
    table.race(
        mode,
        ROUNDS,
        Race {
            name,
            bare: None,
            contenders,
            targets,
        },
    );
}

fn addresses(mode: &Mode, table: &mut Table, setting: &Setting, limit: Limit) {
    if !mode.runs(setting.name) {
        return;
    }
    let mut keys: Vec<IpAddr> = (0..mode.pick(1_000_000, 2_000_u32))
        .map(|n| Ipv4Addr::from_bits(0x0a00_0000 | n).into())
        .collect();
    Random(1).shuffle(&mut keys);
    race_of_addresses(mode, table, setting, limit, &keys);
}

fn hot(mode: &Mode, table: &mut Table, setting: &Setting, limit: Limit) {
    if !mode.runs(setting.name) {
        return;
    }
    let keys = vec![IpAddr::from([192, 0, 2, 1]); mode.pick(500_000, 2_000)];
    race_of_addresses(mode, table, setting, limit, &keys);
}

fn race_of_addresses(
    mode: &Mode,
    table: &mut Table,
    setting: &Setting,
    limit: Limit,
    keys: &[IpAddr],
) {
    let (policy, rule, store) = ours(limit);
    let governor = governors::<IpAddr>(limit);
    let rate_net = rate_nets(limit);
    let deciders = vec![
        Decider::new("tollgate", keys, |key| {
            let ask = Ask::new(&policy, &rule, (*key).into(), Cost::ONE);
            black_box(store.decide(&ask).is_admitted())
        }),
        Decider::new("governor", keys, |key| {
            black_box(governor.check_key(key).is_ok())
        }),
        Decider::new("rate-net", keys, |key| {
            black_box(rate_net.check(*key).is_allow())
        }),
    ];
    race(mode, table, setting, keys.len(), deciders);
}

fn texts(mode: &Mode, table: &mut Table, setting: &Setting, limit: Limit) {
    if !mode.runs(setting.name) {
        return;
    }
    // Made in the order of the visits: a server has just read the key that it asks for.
    let mut numbers: Vec<u32> = (0..mode.pick(1_000_000, 2_000)).collect();
    Random(2).shuffle(&mut numbers);
    let keys: Vec<String> = numbers
        .iter()
        .map(|n| format!("client-key-{n:013x}"))
        .collect();
    assert_eq!(keys[0].len(), 24);
    let (policy, rule, store) = ours(limit);
    let governor = governors::<String>(limit);
    let rate_net = rate_nets(limit);
    let deciders = vec![
        Decider::new("tollgate", &keys, |key| {
            let ask = Ask::new(&policy, &rule, key.as_str().into(), Cost::ONE);
            black_box(store.decide(&ask).is_admitted())
        }),
        Decider::new("governor", &keys, |key| {
            black_box(governor.check_key(key).is_ok())
        }),
        Decider::new("rate-net", &keys, |key| {
            black_box(rate_net.check_bytes(key).is_allow())
        }),
    ];
    race(mode, table, setting, keys.len(), deciders);
}

fn main() {
    let mode = Mode::from_args();
    let mut table = Table::new(Reads::Rate);
    // Debts of at least six minutes, which outlive the run, and room for all visits.
    let roomy = Limit {
        per_hour: 10,
        burst: 100_000,
    };
    let all = |name, threads, targets| Setting {
        name,
        threads,
        passes: true,
        targets,
    };
    let none = |name, threads, targets| Setting {
        name,
        threads,
        passes: false,
        targets,
    };
    let run = &mode;

    let setting = all("1 M addresses, 2 threads", 2, &[("governor", 1.3)]);
    addresses(run, &mut table, &setting, roomy);
    addresses(
        run,
        &mut table,
        &all("1 M addresses, 1 thread", 1, &[]),
        roomy,
    );
    // No whole number of nanoseconds between two tokens.
    let odd = Limit {
        per_hour: 7,
        ..roomy
    };
    addresses(
        run,
        &mut table,
        &all("1 M addresses, 7/h, 2 threads", 2, &[]),
        odd,
    );
    let setting = all(
        "1 M strings of 24 bytes, 2 threads",
        2,
        &[("governor", 2.0)],
    );
    texts(run, &mut table, &setting, roomy);
    texts(
        run,
        &mut table,
        &all("1 M strings of 24 bytes, 1 thread", 1, &[]),
        roomy,
    );

    // As much as all visits take: a token is worth 90 ns.
    let large = Limit {
        per_hour: 40_000_000,
        burst: 1_000_000_000,
    };
    let aim = &[("governor", 0.8)];
    hot(
        run,
        &mut table,
        &all("one hot key, admitted, 2 threads", 2, aim),
        large,
    );
    hot(
        run,
        &mut table,
        &all("one hot key, admitted, 1 thread", 1, aim),
        large,
    );
    let spent = Limit {
        per_hour: 1,
        burst: 1,
    };
    hot(
        run,
        &mut table,
        &none("one hot key, refused, 2 threads", 2, aim),
        spent,
    );
    hot(
        run,
        &mut table,
        &none("one hot key, refused, 1 thread", 1, aim),
        spent,
    );
    table.print(&mode, ROUNDS);
}
