//! Decisions of the store in memory beside those of `governor` and `rate-net`.
//!
//! All keys are loaded before the run, and their debts outlive it. Contenders visit the same keys
//! in the same order, each thread its own part. The keys were loaded in another order, because
//! otherwise the allocations of a key would lie beside those of the next visit.
#![allow(
    clippy::float_arithmetic,
    clippy::unwrap_used,
    reason = "a benchmark prints ratios, and stops where something is odd"
)]

#[path = "../common/mod.rs"]
mod common;

use std::{net::IpAddr, num::NonZeroU32, time::Duration};

use common::{
    decider::{Decider, Part},
    floor::Floor,
    keys::{BenchKey, Keys, addresses, texts, zipf},
};
use governor::DefaultKeyedRateLimiter;
use rate_net::{Eviction, RateLimiter};
use support::{
    Random,
    bench::{Contender, Mode, Race, Reads, Table},
    counting::{Counting, allocations, bytes_kept},
};
use tollgate::{AnyRule, TokenBucket, store::LocalBuilder};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const ROUNDS: usize = 21;

/// The limit that all contenders run: so many tokens per hour, and so many at once.
#[derive(Clone, Copy)]
struct Limit {
    per_hour: u32,
    burst: u32,
}

impl Limit {
    fn rule(self) -> TokenBucket {
        TokenBucket::per_hour(self.per_hour.into()).burst(self.burst.into())
    }
}

/// A key that also the limiter of rate-net with the coarse clock takes.
trait TickedKey: BenchKey {
    fn rate_net_ticked(&self, limiter: &RateLimiter<rate_net::CoarseClock>) -> bool;
}

impl TickedKey for IpAddr {
    fn rate_net_ticked(&self, limiter: &RateLimiter<rate_net::CoarseClock>) -> bool {
        limiter.check(*self).is_allow()
    }
}

impl TickedKey for String {
    fn rate_net_ticked(&self, limiter: &RateLimiter<rate_net::CoarseClock>) -> bool {
        limiter.check_bytes(self).is_allow()
    }
}

/// The settings of a race.
struct Setting {
    name: &'static str,
    threads: usize,
    limit: Limit,
    /// The expected decision, after the first one of each key.
    passes: bool,
    /// Adds contenders to the store, governor, and the floor.
    everybody: bool,
    targets: &'static [(&'static str, &'static str)],
}

fn builder(keys: usize) -> LocalBuilder {
    LocalBuilder::new().capacity(keys.max(1000))
}

fn deciders<'a, K: TickedKey>(setting: &Setting, keys: &'a Keys<K>) -> Vec<Named<'a>> {
    let (limit, count) = (setting.limit, keys.all.len());
    let Limit { per_hour, burst } = limit;
    let quota = governor::Quota::per_hour(NonZeroU32::new(per_hour).unwrap())
        .allow_burst(NonZeroU32::new(burst).unwrap());
    let hour = Duration::from_secs(3600);
    let rate_net = || {
        RateLimiter::builder()
            .quota(per_hour, hour)
            .burst(burst)
            .eviction(Eviction::capacity(2 * count.max(1000)))
    };
    let ticked = rate_net::CoarseClock::spawn(Duration::from_millis(1)).unwrap();
    let interval = hour.as_nanos() as u64 / u64::from(per_hour);
    let typed = limit.rule();
    let mut all = vec![
        Named::made("tollgate", || {
            Decider::ours(keys, typed, builder(count).build())
        }),
        Named::made("governor", || {
            let limiter = DefaultKeyedRateLimiter::<K>::dashmap(quota);
            Decider::new(keys, move |key| limiter.check_key(key).is_ok())
        }),
        Named::made("floor", || {
            let floor = Floor::new(count, interval, burst.into());
            Decider::new(keys, move |key: &K| {
                floor.decide(|hasher| key.floor(hasher))
            })
        }),
    ];
    if setting.everybody {
        let any = AnyRule::from(typed);
        all.extend([
            Named::made("tollgate, rule chosen at run time", || {
                Decider::ours(keys, any, builder(count).build())
            }),
            Named::made("rate-net", || {
                let limiter = rate_net().build();
                Decider::new(keys, move |key: &K| key.rate_net(&limiter))
            }),
            Named::made("rate-net, coarse clock", || {
                let limiter = rate_net().clock(ticked).build();
                Decider::new(keys, move |key: &K| key.rate_net_ticked(&limiter))
            }),
        ]);
    }
    all
}

/// A limiter under its name.
struct Named<'a> {
    name: &'static str,
    /// The bytes that it keeps in memory, with its keys.
    bytes: i64,
    decider: Decider<'a>,
}

impl<'a> Named<'a> {
    /// Makes a limiter, and counts what it keeps in memory.
    fn made(name: &'static str, make: impl FnOnce() -> Decider<'a>) -> Self {
        let (bytes, decider) = bytes_kept(make);
        Self {
            name,
            bytes,
            decider,
        }
    }
}

fn race<K: TickedKey>(mode: &Mode, table: &mut Table, setting: &Setting, keys: &Keys<K>) {
    let Setting {
        name,
        threads,
        passes,
        targets,
        ..
    } = *setting;
    let (count, visits) = (keys.all.len(), keys.visits.len());
    let each = mode.pick(250_000, 500).min(visits / threads);
    let contenders = deciders(setting, keys).into_iter().map(|named| {
        let Named {
            name,
            bytes,
            decider,
        } = named;
        assert_eq!(decider.loaded, count, "{name}: passed at first");
        if count >= 1_000_000 {
            eprintln!("{name}: {} bytes per key", bytes / count as i64);
        }
        let (allocations, _) = allocations(|| decider.decide(0..each.min(1000)));
        let part = Part {
            visits: 0..visits,
            threads,
            each,
        };
        let turn = move |round: usize| {
            let (cost, passed) = decider.turn(&part, round);
            let expected = if passes { threads * each } else { 0 };
            assert_eq!(passed, expected, "{name} passed");
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
        mode.rounds(ROUNDS),
        Race {
            name,
            bare: None,
            contenders,
            targets,
        },
    );
}

/// Every key once, in an order that no memory foresees.
fn uniform(count: usize) -> Vec<u32> {
    let mut visits: Vec<u32> = (0..count as u32).collect();
    Random::new(1).shuffle(&mut visits);
    visits
}

fn main() {
    let mode = Mode::from_args();
    let mut table = Table::new(Reads::Rate);
    // Debts of at least six minutes, which outlive the run, and room for all visits.
    let roomy = Limit {
        per_hour: 10,
        burst: 100_000,
    };
    // As much as all visits of one key take: a token is worth 90 ns.
    let large = Limit {
        per_hour: 40_000_000,
        burst: 1_000_000_000,
    };
    let spent = Limit {
        per_hour: 1,
        burst: 1,
    };
    // No whole number of thirds of a nanosecond between two tokens.
    let odd = Limit {
        per_hour: 7,
        ..roomy
    };
    let setting = |name, threads, limit, targets| Setting {
        name,
        threads,
        limit,
        passes: true,
        everybody: true,
        targets,
    };
    let denied = |name, threads, targets| Setting {
        passes: false,
        ..setting(name, threads, spent, targets)
    };
    let few = |setting| Setting {
        everybody: false,
        ..setting
    };
    const ALONE: &[(&str, &str)] = &[
        ("governor", "≥ 2.22"),
        ("floor", "≥ 0.91"),
        ("tollgate, rule chosen at run time", "≤ 1.15"),
    ];
    const MANY: &[(&str, &str)] = &[("governor", "≥ 2.22"), ("floor", "≥ 0.8")];
    const MANY_TEXTS: &[(&str, &str)] = &[("governor", "≥ 3.33"), ("floor", "≥ 0.8")];

    let one = Keys::new(addresses(1), &vec![0; mode.pick(500_000, 2_000)]);
    for setting in [
        setting("one hot key, admitted, 1 thread", 1, large, ALONE),
        setting(
            "one hot key, admitted, 2 threads",
            2,
            large,
            &[("governor", "≥ 1.8")],
        ),
        denied("one hot key, refused, 1 thread", 1, ALONE),
        denied(
            "one hot key, refused, 2 threads",
            2,
            &[("governor", "≥ 5.0")],
        ),
    ] {
        if mode.runs(setting.name) {
            race(&mode, &mut table, &setting, &one);
        }
    }

    let count = mode.pick(10_000, 2_000);
    let visits = uniform(count).repeat(mode.pick(50, 1));
    let ten_thousand = Keys::new(addresses(count), &visits);
    for setting in [
        setting("10 k addresses, 1 thread", 1, roomy, &[]),
        setting("10 k addresses, 2 threads", 2, roomy, &[]),
    ] {
        if mode.runs(setting.name) {
            race(&mode, &mut table, &setting, &ten_thousand);
        }
    }

    let count = mode.pick(1_000_000, 2_000);
    let million = Keys::new(addresses(count), &uniform(count));
    for setting in [
        setting("1 M addresses, 1 thread", 1, roomy, MANY),
        setting(
            "1 M addresses, 2 threads",
            2,
            roomy,
            &[("governor", "≥ 2.5")],
        ),
        few(setting("1 M addresses, 7/h, 1 thread", 1, odd, &[])),
    ] {
        if mode.runs(setting.name) {
            race(&mode, &mut table, &setting, &million);
        }
    }
    // One visit in fifteen is of one key.
    let roomier = Limit {
        per_hour: 100,
        burst: 1_000_000,
    };
    let skewed = setting("1 M addresses, Zipf 0.99, 2 threads", 2, roomier, &[]);
    if mode.runs(skewed.name) {
        let million = Keys::new(million.all, &zipf(count, count));
        race(&mode, &mut table, &skewed, &million);
    }

    let million = Keys::new(texts(count), &uniform(count));
    for setting in [
        setting("1 M strings, 1 thread", 1, roomy, MANY_TEXTS),
        setting("1 M strings, 2 threads", 2, roomy, &[("governor", "≥ 2.5")]),
    ] {
        if mode.runs(setting.name) {
            race(&mode, &mut table, &setting, &million);
        }
    }
    drop(million);

    let ten = few(setting("10 M addresses, 2 threads", 2, roomy, &[]));
    if mode.runs(ten.name) {
        let count = mode.pick(10_000_000, 2_000);
        let keys = Keys::new(addresses(count), &uniform(count));
        race(&mode, &mut table, &ten, &keys);
    }
    table.print(&mode, mode.rounds(ROUNDS));
}
