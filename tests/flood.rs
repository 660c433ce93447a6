//! A flood of more keys than the store in memory has room for: its size stays the same, no key is admitted above its
//! limit, and known keys keep being served.
#![cfg(feature = "test-util")]

#[allow(dead_code)]
use std::{
    collections::HashMap,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use support::{
    Random,
    counting::{Counting, bytes_kept},
};
use tollgate::{
    Cost, Decision, Policy, Timestamp, TokenBucket,
    store::{Ask, AtCapacity, Local, LocalBuilder},
    time::{Clock, ManualClock},
};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const SECOND: u64 = 1_000_000_000;
/// The limit of each key: ten, and one more every six seconds.
const FULL: u64 = 60 * SECOND;
const TOKEN: u64 = 6 * SECOND;

fn rule() -> TokenBucket {
    TokenBucket::per_minute(10)
}

/// The same limit, counted in whole nanoseconds.
#[derive(Clone, Copy)]
struct Limit {
    held: u64,
    at: Timestamp,
}

impl Limit {
    fn full(at: Timestamp) -> Self {
        Self { held: FULL, at }
    }

    /// Takes a token, if it holds one.
    fn spend(&mut self, now: Timestamp) -> bool {
        let refilled = now.saturating_since(self.at).as_nanos() as u64;
        (self.held, self.at) = (FULL.min(self.held + refilled), now);
        let passes = self.held >= TOKEN;
        self.held -= if passes { TOKEN } else { 0 };
        passes
    }
}

/// Who asks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Who {
    Attacker(u64),
    /// Was there before the flood, and keeps below its limit.
    Known(u64),
    /// Comes for the first time during the flood.
    Newcomer(u64),
}

/// How many of some requests passed, and how many would have with room for all keys.
#[derive(Clone, Copy, Debug, Default)]
struct Served {
    passed: u64,
    due: u64,
}

impl Served {
    fn percent(self) -> u64 {
        self.passed * 100 / self.due.max(1)
    }
}

/// A store under test, with what every key may do beside it.
struct Watched {
    clock: ManualClock,
    store: Local<TokenBucket, ManualClock>,
    capacity: usize,
    policy: Policy,
    /// For each key what its limit leaves of what has passed, and of what would have passed.
    limits: HashMap<Who, [Limit; 2]>,
    attackers: Served,
    known: Served,
    newcomers: Served,
    bytes: i64,
}

impl Watched {
    fn new(capacity: usize, choice: AtCapacity) -> Self {
        let clock = ManualClock::default();
        let build = || {
            LocalBuilder::new()
                .capacity(capacity)
                .at_capacity(choice)
                .clock(clock.clone())
                .build()
        };
        let (bytes, store) = bytes_kept(build);
        Self {
            clock,
            store,
            capacity,
            policy: Policy::default(),
            limits: HashMap::new(),
            attackers: Served::default(),
            known: Served::default(),
            newcomers: Served::default(),
            bytes,
        }
    }

    fn ask(&mut self, who: Who) -> Decision {
        let key = match who {
            Who::Attacker(n) => n,
            Who::Known(n) => 1 << 32 | n,
            Who::Newcomer(n) => 2 << 32 | n,
        };
        let rule = rule();
        let ask = Ask::new(&self.policy, &rule, key.into(), Cost::ONE);
        let (bytes, decision) = bytes_kept(|| self.store.decide(&ask));
        self.bytes += bytes;
        assert!(self.store.len() <= self.capacity);

        let now = self.clock.now();
        let full = || [Limit::full(now); 2];
        let [passed, due] = self.limits.entry(who).or_insert_with(full);
        let served = match who {
            Who::Attacker(_) => &mut self.attackers,
            Who::Known(_) => &mut self.known,
            Who::Newcomer(_) => &mut self.newcomers,
        };
        served.due += u64::from(due.spend(now));
        if decision.is_admitted() && !decision.is_undecided() {
            served.passed += 1;
            assert!(
                passed.spend(now),
                "{who:?} is above its limit: {decision:?}"
            );
        }
        decision
    }

    fn advance(&self, nanos: u64) {
        self.clock.advance(Duration::from_nanos(nanos));
    }

    /// The table, and a little of the map: 24 bytes a key, and what is there without any.
    fn takes_no_more_memory_than_stated(&self) {
        let most = 24 * self.capacity as i64 + 64 * 1024;
        assert!(self.bytes <= most, "{} bytes, at most {most}", self.bytes);
    }
}

/// Requests of one kind of client: `count` of them, each once every `period`.
#[derive(Clone, Copy)]
struct Crowd {
    count: u64,
    period: u64,
}

impl Crowd {
    /// When the `n`th of all their requests comes.
    fn at(self, n: u64) -> u64 {
        n * self.period / self.count
    }

    fn requests(self, seconds: u64) -> u64 {
        seconds * SECOND / self.period * self.count
    }
}

/// Always a little in debt, and always below their limit: three requests at once, then one every 6.1 s.
const BUSY: Crowd = Crowd {
    count: 100,
    period: 61 * SECOND / 10,
};

/// Known clients alone at first, then attackers beside them, each once in every round, the rounds in
/// random orders. Twice a second a newcomer comes for three requests, a second apart.
fn flood(watched: &mut Watched, known: Crowd, attackers: Crowd, seconds: u64, random: &mut Random) {
    for n in 0..known.count {
        for _ in 0..3 {
            watched.ask(Who::Known(n));
        }
        watched.advance(known.period / known.count);
    }
    watched.known = Served::default();
    let mut asks: Vec<(u64, Who)> = Vec::new();
    let mut order: Vec<u64> = (0..attackers.count).collect();
    for n in 0..attackers.requests(seconds) {
        let index = (n % attackers.count) as usize;
        if index == 0 {
            random.shuffle(&mut order);
        }
        asks.push((attackers.at(n), Who::Attacker(order[index])));
    }
    for n in 0..known.requests(seconds) {
        asks.push((known.at(n), Who::Known(n % known.count)));
    }
    for n in 0..2 * seconds {
        let first = n * SECOND / 2;
        asks.extend((0..3).map(|request| (first + request * SECOND, Who::Newcomer(n))));
    }
    asks.sort_by_key(|(at, _)| *at);
    let mut now = 0;
    for (at, who) in asks {
        watched.advance(at - now);
        now = at;
        watched.ask(who);
    }
    println!(
        "{} attackers, every {} s: {}% of theirs pass, {}% of the known ones', {}% of the newcomers'; {} bytes, {:?}",
        attackers.count,
        attackers.period / SECOND,
        watched.attackers.percent(),
        watched.known.percent(),
        watched.newcomers.percent(),
        watched.bytes,
        watched.store.stats(),
    );
    watched.takes_no_more_memory_than_stated();
}

const CAPACITY: usize = 20_000;
/// Twice as many debts at a time as there is room for.
const ATTACKERS: Crowd = Crowd {
    count: 200_000,
    period: 30 * SECOND,
};

/// Here 79 % of what known clients ask for passes, and 62 % of newcomers' first three requests.
#[test]
fn whoever_inherits_is_served_within_its_limit() {
    let mut watched = Watched::new(CAPACITY, AtCapacity::InheritDebts);
    flood(&mut watched, BUSY, ATTACKERS, 90, &mut Random::new(1));
    assert!(watched.store.stats().evicted > 100_000);
    assert!(watched.known.percent() >= 70);
    assert!(watched.newcomers.percent() >= 50);
}

/// As long as it always owes something: who owes nothing is forgotten, and a newcomer.
#[test]
fn whoever_is_known_loses_nothing_where_newcomers_are_refused() {
    let mut watched = Watched::new(CAPACITY, AtCapacity::RefuseNewcomers);
    flood(&mut watched, BUSY, ATTACKERS, 60, &mut Random::new(2));
    let stats = watched.store.stats();
    assert!(stats.turned_away > 10_000 && stats.evicted == 0);
    assert_eq!(watched.known.passed, watched.known.due);
    assert_eq!(watched.known.due, BUSY.requests(60));
}

/// Attackers who ask for twice their limit, half as many as there is room for, and twice as many.
#[test]
fn the_flood_decides_who_is_served() {
    for (count, all, known, newcomers) in [(1_000, 100, 100, 100), (4_000, 40, 30, 20)] {
        let mut watched = Watched::new(2_000, AtCapacity::InheritDebts);
        let period = 3 * SECOND;
        let attackers = Crowd { count, period };
        flood(&mut watched, BUSY, attackers, 90, &mut Random::new(3));
        assert!(watched.attackers.percent() >= all);
        assert!(watched.known.percent() >= known);
        assert!(watched.newcomers.percent() >= newcomers);
    }
}

/// Two threads that ask for the same keys, far more than there is room for: each key passes at most
/// as often as its limit allows in all that time.
#[test]
fn threads_in_a_flood_admit_nobody_above_its_limit() {
    const KEYS: u64 = 8_000;
    for choice in [AtCapacity::InheritDebts, AtCapacity::RefuseNewcomers] {
        let clock = ManualClock::default();
        let start = clock.now();
        let store: Local<TokenBucket, _> = LocalBuilder::new()
            .capacity(1_000)
            .at_capacity(choice)
            .clock(clock.clone())
            .build();
        let passed: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
        std::thread::scope(|scope| {
            for thread in 0..2 {
                let (store, clock, passed) = (&store, &clock, &passed);
                scope.spawn(move || {
                    let (policy, rule, mut random) =
                        (Policy::default(), rule(), Random::new(thread));
                    for call in 0..100_000 {
                        // Every third call is about one of a few keys, so that both meet there.
                        let few = if call % 3 == 0 { 50 } else { KEYS };
                        let key = random.below(few);
                        let ask = Ask::new(&policy, &rule, key.into(), Cost::ONE);
                        let admitted = store.decide(&ask).is_admitted();
                        passed[key as usize].fetch_add(u64::from(admitted), Ordering::Relaxed);
                        assert!(store.len() <= 1_000);
                        if call % 100 == 0 {
                            clock.advance(Duration::from_millis(30));
                        }
                    }
                });
            }
        });
        let elapsed = clock.now().saturating_since(start).as_nanos() as u64;
        let most = (FULL + elapsed) / TOKEN;
        let passed = || passed.iter().map(|count| count.load(Ordering::Relaxed));
        assert!(passed().all(|count| count <= most));
        // Not for want of requests.
        assert!(passed().any(|count| 2 * count > most), "{choice:?}");
        let stats = store.stats();
        assert!(stats.evicted + stats.turned_away > 10_000);
        let gone = stats.forgotten + stats.evicted;
        assert_eq!(stats.inserted, stats.keys as u64 + gone);
    }
}

/// A store that was given so many bytes takes no more, when it is built and when it is full.
#[test]
fn a_capacity_in_bytes_is_kept() {
    const BYTES: usize = 1 << 20;
    let policy = Policy::default();
    let rule = TokenBucket::per_hour(1);
    let (bytes, store) = bytes_kept(|| {
        let store: Local<TokenBucket> = LocalBuilder::new().capacity_in_bytes(BYTES).build();
        for key in 0..store.stats().capacity as u64 * 7 / 10 {
            store.decide(&Ask::new(&policy, &rule, key.into(), Cost::ONE));
        }
        store
    });
    assert!(store.stats().capacity > BYTES / 22);
    // Beside the table there are the locks of the shards.
    assert!(bytes <= BYTES as i64 + 50_000, "{bytes} bytes");
}
