//! Decisions of the store in memory beside those of `governor` and `rate-net`.
//!
//! All keys are loaded before the run, and their debts outlive it. Contenders visit the same keys in the same order,
//! each thread its own part. The keys were loaded in another order, because otherwise the allocations of a key would lie
//! beside those of the next visit.
#![allow(
    clippy::float_arithmetic,
    clippy::unwrap_used,
    reason = "a benchmark prints ratios, and stops where something is odd"
)]

mod floor;

use std::{
    hash::{Hash, Hasher},
    hint::black_box,
    net::{IpAddr, Ipv4Addr},
    num::NonZeroU32,
    ops::Range,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use floor::Floor;
use governor::DefaultKeyedRateLimiter;
use rate_net::{Eviction, RateLimiter};
use support::{
    Random,
    bench::{Contender, Mode, Race, Reads, Table, together},
    counting::{Counting, allocations, bytes_kept},
};
use tollgate::{
    AnyRule, Cost, Policy, TokenBucket,
    algorithm::Algorithm,
    key::Key,
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

impl Limit {
    fn rule(self) -> TokenBucket {
        TokenBucket::per_hour(self.per_hour.into()).burst(self.burst.into())
    }
}

/// Keys that all contenders take, each in its own way.
trait BenchKey: Hash + Eq + Clone + Send + Sync {
    fn ours(&self) -> Key;
    fn rate_net(&self, limiter: &RateLimiter) -> bool;
    fn rate_net_ticked(&self, limiter: &RateLimiter<rate_net::CoarseClock>) -> bool;
    fn floor(&self, hasher: &mut impl Hasher);
}

impl BenchKey for IpAddr {
    fn ours(&self) -> Key {
        (*self).into()
    }

    fn rate_net(&self, limiter: &RateLimiter) -> bool {
        limiter.check(*self).is_allow()
    }

    fn rate_net_ticked(&self, limiter: &RateLimiter<rate_net::CoarseClock>) -> bool {
        limiter.check(*self).is_allow()
    }

    fn floor(&self, hasher: &mut impl Hasher) {
        match self {
            Self::V4(address) => hasher.write_u32(address.to_bits()),
            Self::V6(address) => hasher.write_u128(address.to_bits()),
        }
    }
}

impl BenchKey for String {
    fn ours(&self) -> Key {
        self.as_str().into()
    }

    fn rate_net(&self, limiter: &RateLimiter) -> bool {
        limiter.check_bytes(self).is_allow()
    }

    fn rate_net_ticked(&self, limiter: &RateLimiter<rate_net::CoarseClock>) -> bool {
        limiter.check_bytes(self).is_allow()
    }

    fn floor(&self, hasher: &mut impl Hasher) {
        hasher.write(self.as_bytes());
    }
}

/// The keys of a race: all of them once, and as they are visited. A server has just read the key that
/// it asks for, so visits lie one behind the other.
struct Keys<K> {
    all: Vec<K>,
    visits: Vec<K>,
}

impl<K: Clone> Keys<K> {
    fn new(all: Vec<K>, visits: &[u32]) -> Self {
        let visits = visits.iter().map(|n| all[*n as usize].clone()).collect();
        Self { all, visits }
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

/// A store of ours under a rule.
fn ours<'a, A, K>(name: &'static str, rule: A, store: Local<A>, keys: &'a Keys<K>) -> Decider<'a>
where
    A: Algorithm<State: Send + Sync> + Clone + Sync + 'a,
    K: BenchKey,
{
    let policy = Policy::new("bench");
    Decider::new(name, keys, move |key: &K| {
        let ask = Ask::new(&policy, &rule, key.ours(), Cost::ONE);
        store.decide(&ask).is_admitted()
    })
}

fn builder(keys: usize) -> LocalBuilder {
    LocalBuilder::new().capacity(keys.max(1000))
}

fn deciders<'a, K: BenchKey>(setting: &Setting, keys: &'a Keys<K>) -> Vec<Decider<'a>> {
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
        Decider::made("tollgate", || ours("", typed, builder(count).build(), keys)),
        Decider::made("governor", || {
            let limiter = DefaultKeyedRateLimiter::<K>::dashmap(quota);
            Decider::new("", keys, move |key| limiter.check_key(key).is_ok())
        }),
        Decider::made("floor", || {
            let floor = Floor::new(count, interval, burst.into());
            Decider::new("", keys, move |key: &K| {
                floor.decide(|hasher| key.floor(hasher))
            })
        }),
    ];
    if setting.everybody {
        let any = AnyRule::from(typed);
        all.extend([
            Decider::made("tollgate, rule chosen at run time", || {
                ours("", any, builder(count).build(), keys)
            }),
            Decider::made("rate-net", || {
                let limiter = rate_net().build();
                Decider::new("", keys, move |key: &K| key.rate_net(&limiter))
            }),
            Decider::made("rate-net, coarse clock", || {
                let limiter = rate_net().clock(ticked).build();
                Decider::new("", keys, move |key: &K| key.rate_net_ticked(&limiter))
            }),
        ]);
    }
    all
}

/// Decides on a range of the visits, and tells how many passed.
struct Decider<'a> {
    name: &'static str,
    /// Bytes that making it and loading all keys took, and how many of them passed.
    bytes: i64,
    loaded: usize,
    decide: Box<dyn Fn(Range<usize>) -> usize + Sync + 'a>,
}

impl<'a> Decider<'a> {
    /// Makes a decider, and counts what it keeps in memory.
    fn made(name: &'static str, make: impl FnOnce() -> Decider<'a>) -> Self {
        let (bytes, decider) = bytes_kept(make);
        Self {
            name,
            bytes,
            ..decider
        }
    }

    /// Loads all keys. `decide` stands inside the loop, where the compiler sees it.
    fn new<K: Sync>(
        name: &'static str,
        keys: &'a Keys<K>,
        decide: impl Fn(&K) -> bool + Sync + 'a,
    ) -> Self {
        let mut order: Vec<usize> = (0..keys.all.len()).collect();
        Random::new(4).shuffle(&mut order);
        let loaded = order.into_iter().filter(|n| decide(&keys.all[*n])).count();
        let decide = move |range: Range<usize>| {
            keys.visits[range]
                .iter()
                .filter(|key| black_box(decide(black_box(key))))
                .count()
        };
        Self {
            name,
            bytes: 0,
            loaded,
            decide: Box::new(decide),
        }
    }
}

fn race<K: BenchKey>(mode: &Mode, table: &mut Table, setting: &Setting, keys: &Keys<K>) {
    let Setting {
        name,
        threads,
        passes,
        targets,
        ..
    } = *setting;
    let (count, visits) = (keys.all.len(), keys.visits.len());
    let each = mode.pick(250_000, 500).min(visits / threads);
    let contenders = deciders(setting, keys).into_iter().map(|decider| {
        let Decider {
            name,
            bytes,
            loaded,
            decide,
        } = decider;
        assert_eq!(loaded, count, "{name}: passed at first");
        if count >= 1_000_000 {
            eprintln!("{name}: {} bytes per key", bytes / count as i64);
        }
        let (allocations, _) = allocations(|| decide(0..each.min(1000)));
        let turn = move |round: usize| {
            let passed = AtomicUsize::new(0);
            let cost = together(threads, each, |thread| {
                let part = visits / threads;
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

/// Every key once, in an order that no memory foresees.
fn uniform(count: usize) -> Vec<u32> {
    let mut visits: Vec<u32> = (0..count as u32).collect();
    Random::new(1).shuffle(&mut visits);
    visits
}

/// As many visits, of key k in proportion to (k + 1)^-0.99.
fn zipf(count: usize) -> Vec<u32> {
    let mut sum = 0.0;
    let sums: Vec<f64> = (1..=count)
        .map(|rank| {
            sum += (rank as f64).powf(-0.99);
            sum
        })
        .collect();
    let mut random = Random::new(5);
    let mut visit = || {
        let drawn = random.next_u64() as f64 / u64::MAX as f64 * sum;
        sums.partition_point(|sum| *sum < drawn).min(count - 1) as u32
    };
    (0..count).map(|_| visit()).collect()
}

fn addresses(count: usize) -> Vec<IpAddr> {
    let mut keys: Vec<IpAddr> = (0..count as u32)
        .map(|n| Ipv4Addr::from_bits(0x0a00_0000 + n).into())
        .collect();
    Random::new(2).shuffle(&mut keys);
    keys
}

fn texts(count: usize) -> Vec<String> {
    // 16 to 40 characters, 24 in most.
    let width = |n| [13, 13, 13, 5, 29][n % 5];
    (0..count)
        .map(|n| format!("client-key-{n:0width$x}", width = width(n)))
        .collect()
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
        let million = Keys::new(million.all, &zipf(count));
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
    table.print(&mode, ROUNDS);
}
