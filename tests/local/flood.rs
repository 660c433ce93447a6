//! A flood of more keys than the store in memory has room for: its size stays the same, no key is
//! admitted above its limit, and known keys are still served.

#[allow(dead_code)]
use std::{
    collections::HashMap,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use support::{Random, counting::bytes_kept};
use tollgate::{
    Cost, Decision, Policy, Timestamp, TokenBucket,
    store::{AtCapacity, Local, LocalBuilder, driver::Ask},
    time::{Clock, ManualClock},
};

const SECOND: u64 = 1_000_000_000;
/// The limit of each key: a burst of ten, and one token every six seconds.
const FULL: u64 = 60 * SECOND;
const TOKEN: u64 = 6 * SECOND;

fn rule() -> TokenBucket {
    TokenBucket::per_minute(10)
}

/// An oracle of the rule, counted in whole nanoseconds.
#[derive(Clone, Copy)]
struct Limit {
    held: u64,
    at: Timestamp,
}

impl Limit {
    fn full(at: Timestamp) -> Self {
        Self { held: FULL, at }
    }

    /// Takes a token, if there is one.
    fn spend(&mut self, now: Timestamp) -> bool {
        let refilled = now.saturating_since(self.at).as_nanos() as u64;
        (self.held, self.at) = (FULL.min(self.held + refilled), now);
        let passes = self.held >= TOKEN;
        self.held -= if passes { TOKEN } else { 0 };
        passes
    }
}

/// A client.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Client {
    Attacker(u64),
    /// Present before the flood, and below its limit.
    Known(u64),
    /// Appears for the first time during the flood.
    Newcomer(u64),
}

/// The number of admitted requests, and the number that would be admitted with room for all keys.
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

/// A store under test, and the expected limit of every key.
struct StoreUnderTest {
    clock: ManualClock,
    store: Local<TokenBucket, ManualClock>,
    capacity: usize,
    policy: Policy,
    /// Two limits for each key: one charged with the admitted requests, one with the requests that
    /// should have been admitted.
    limits: HashMap<Client, [Limit; 2]>,
    attackers: Served,
    known: Served,
    newcomers: Served,
    bytes: i64,
}

impl StoreUnderTest {
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

    fn ask(&mut self, client: Client) -> Decision {
        let key = match client {
            Client::Attacker(n) => n,
            Client::Known(n) => 1 << 32 | n,
            Client::Newcomer(n) => 2 << 32 | n,
        };
        let rule = rule();
        let ask = Ask::new(&self.policy, &rule, key.into(), Cost::ONE);
        let (bytes, decision) = bytes_kept(|| self.store.decide(&ask));
        self.bytes += bytes;
        assert!(self.store.len() <= self.capacity);

        let now = self.clock.now();
        let full = || [Limit::full(now); 2];
        let [passed, due] = self.limits.entry(client).or_insert_with(full);
        let served = match client {
            Client::Attacker(_) => &mut self.attackers,
            Client::Known(_) => &mut self.known,
            Client::Newcomer(_) => &mut self.newcomers,
        };
        served.due += u64::from(due.spend(now));
        if decision.is_admitted() && !decision.is_undecided() {
            served.passed += 1;
            assert!(
                passed.spend(now),
                "{client:?} is above its limit: {decision:?}"
            );
        }
        decision
    }

    fn advance(&self, nanos: u64) {
        self.clock.advance(Duration::from_nanos(nanos));
    }

    /// Asserts the memory used: the table, and a little for the map, which is 24 bytes per key and
    /// a constant.
    fn assert_memory_bound(&self) {
        let most = 24 * self.capacity as i64 + 64 * 1024;
        assert!(self.bytes <= most, "{} bytes, at most {most}", self.bytes);
    }
}

/// The requests of one kind of client: `count` clients, each with one request every `period`.
#[derive(Clone, Copy)]
struct Crowd {
    count: u64,
    period: u64,
}

impl Crowd {
    /// Returns the instant of the `n`th request of the crowd.
    fn at(self, n: u64) -> u64 {
        n * self.period / self.count
    }

    fn requests(self, seconds: u64) -> u64 {
        seconds * SECOND / self.period * self.count
    }
}

/// Always slightly in debt, and always below the limit: three requests at once, then one every 6.1
/// s.
const BUSY: Crowd = Crowd {
    count: 100,
    period: 61 * SECOND / 10,
};

/// Runs known clients alone at first, then with attackers. Each attacker makes one request per
/// round, in random order. Twice a second a new client starts, with three requests a second apart.
fn flood(
    tested: &mut StoreUnderTest,
    known: Crowd,
    attackers: Crowd,
    seconds: u64,
    random: &mut Random,
) {
    for n in 0..known.count {
        for _ in 0..3 {
            tested.ask(Client::Known(n));
        }
        tested.advance(known.period / known.count);
    }
    tested.known = Served::default();
    let mut asks: Vec<(u64, Client)> = Vec::new();
    let mut order: Vec<u64> = (0..attackers.count).collect();
    for n in 0..attackers.requests(seconds) {
        let index = (n % attackers.count) as usize;
        if index == 0 {
            random.shuffle(&mut order);
        }
        asks.push((attackers.at(n), Client::Attacker(order[index])));
    }
    for n in 0..known.requests(seconds) {
        asks.push((known.at(n), Client::Known(n % known.count)));
    }
    for n in 0..2 * seconds {
        let first = n * SECOND / 2;
        asks.extend((0..3).map(|request| (first + request * SECOND, Client::Newcomer(n))));
    }
    asks.sort_by_key(|(at, _)| *at);
    let mut now = 0;
    for (at, client) in asks {
        tested.advance(at - now);
        now = at;
        tested.ask(client);
    }
    println!(
        "{} attackers, every {} s: {}% of theirs pass, {}% of the known ones', {}% of the newcomers'; {} bytes, {:?}",
        attackers.count,
        attackers.period / SECOND,
        tested.attackers.percent(),
        tested.known.percent(),
        tested.newcomers.percent(),
        tested.bytes,
        tested.store.stats(),
    );
    tested.assert_memory_bound();
}

const CAPACITY: usize = 5_000;
/// Causes twice as many debts at a time as there is room for.
const ATTACKERS: Crowd = Crowd {
    count: 50_000,
    period: 30 * SECOND,
};

/// Measured: 75 % of the due requests of known clients pass, and 59 % of the first three requests
/// of new clients.
#[test]
fn known_and_new_clients_are_served_when_debts_are_inherited() {
    let mut tested = StoreUnderTest::new(CAPACITY, AtCapacity::InheritDebts);
    flood(&mut tested, BUSY, ATTACKERS, 90, &mut Random::new(1));
    assert!(tested.store.stats().evicted > 25_000);
    assert!(tested.known.percent() >= 70);
    assert!(tested.newcomers.percent() >= 50);
}

/// Holds as long as the client always has a debt. A client without debt is forgotten and counts as
/// new.
#[test]
fn known_clients_lose_nothing_when_newcomers_are_refused() {
    let mut tested = StoreUnderTest::new(CAPACITY, AtCapacity::RefuseNewcomers);
    flood(&mut tested, BUSY, ATTACKERS, 60, &mut Random::new(2));
    let stats = tested.store.stats();
    assert!(stats.turned_away > 10_000 && stats.evicted == 0);
    assert_eq!(tested.known.passed, tested.known.due);
    assert_eq!(tested.known.due, BUSY.requests(60));
}

/// The attackers send twice their limit, with half as many keys as there is room for, and with
/// twice as many.
#[test]
fn the_share_of_served_requests_depends_on_the_flood() {
    for (count, all, known, newcomers) in [(1_000, 100, 100, 100), (4_000, 40, 30, 20)] {
        let mut tested = StoreUnderTest::new(2_000, AtCapacity::InheritDebts);
        let period = 3 * SECOND;
        let attackers = Crowd { count, period };
        flood(&mut tested, BUSY, attackers, 90, &mut Random::new(3));
        assert!(tested.attackers.percent() >= all);
        assert!(tested.known.percent() >= known);
        assert!(tested.newcomers.percent() >= newcomers);
    }
}

/// Two threads use the same keys, far more than there is room for. Each key is admitted at most as
/// often as its limit allows in that time.
#[test]
fn concurrent_threads_in_a_flood_admit_no_key_above_its_limit() {
    const KEYS: u64 = 8_000;
    let calls = support::cases(100_000).max(25_000);
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
                    for call in 0..calls {
                        // Every third call uses one of a few keys, so that both threads meet there.
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
        // Each key had enough requests to reach its limit.
        assert!(passed().any(|count| 2 * count > most), "{choice:?}");
        let stats = store.stats();
        assert!(stats.evicted + stats.turned_away > calls / 10);
        let gone = stats.forgotten + stats.evicted;
        assert_eq!(stats.inserted, stats.keys as u64 + gone);
    }
}

/// A store with a capacity in bytes takes no more than that, when it is new and when it is full.
#[test]
fn a_capacity_in_bytes_is_not_exceeded() {
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
    assert!(store.stats().capacity > BYTES / 24);
    // Beside the table are the locks of the shards, and the few keys whose sets have no room, by
    // chance: 44,000 to 50,000 bytes.
    assert!(bytes <= BYTES as i64 + 64_000, "{bytes} bytes");
}
