//! The store in memory under attack: ten million distinct keys through room for a million, while a
//! thousand honest clients go on; and the slowest insertion on the way to a million.
#![allow(
    clippy::disallowed_methods,
    clippy::float_arithmetic,
    clippy::unwrap_used,
    reason = "a benchmark reads clocks, prints ratios, and stops where something is odd"
)]

mod common;

use std::{
    hint::black_box,
    net::{IpAddr, Ipv4Addr},
    num::NonZeroU32,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use common::{
    Random,
    counting::{Counting, bytes_kept},
    race::Mode,
};
use governor::DefaultKeyedRateLimiter;
use tollgate::{
    Cost, Policy, TokenBucket,
    store::{Ask, Local, LocalBuilder},
};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const BURST: u32 = 5;
const HONEST: usize = 1_000;

/// Five at once, and one in ten seconds.
fn rule() -> TokenBucket {
    TokenBucket::per_minute(6).burst(BURST.into())
}

struct Ours {
    store: Local<TokenBucket>,
    policy: Policy,
    rule: TokenBucket,
}

impl Ours {
    fn new(capacity: usize) -> Self {
        Self {
            store: LocalBuilder::new().capacity(capacity).build(),
            policy: Policy::new("flood"),
            rule: rule(),
        }
    }

    fn decide(&self, key: IpAddr) -> bool {
        let ask = Ask::new(&self.policy, &self.rule, key.into(), Cost::ONE);
        self.store.decide(&ask).is_admitted()
    }
}

fn governor() -> DefaultKeyedRateLimiter<IpAddr> {
    let quota = governor::Quota::per_minute(NonZeroU32::new(6).unwrap())
        .allow_burst(NonZeroU32::new(BURST).unwrap());
    DefaultKeyedRateLimiter::dashmap(quota)
}

/// Attackers have the addresses from 10.0.0.0 on, honest clients those from 192.0.2.0 on.
fn attacker(n: u32) -> IpAddr {
    Ipv4Addr::from_bits(0x0a00_0000 + n).into()
}

fn honest(n: usize) -> IpAddr {
    Ipv4Addr::from_bits(0xc000_0200 + n as u32).into()
}

fn shuffled(count: usize) -> Vec<u32> {
    let mut order: Vec<u32> = (0..count as u32).collect();
    Random(8).shuffle(&mut order);
    order
}

/// Nanoseconds per decision, and bytes that the flood left behind.
fn flood(order: &[u32], decide: impl Fn(IpAddr) -> bool) -> (f64, i64) {
    let (bytes, took) = bytes_kept(|| {
        let begun = Instant::now();
        order.iter().for_each(|n| {
            black_box(decide(attacker(*n)));
        });
        begun.elapsed()
    });
    (took.as_nanos() as f64 / order.len() as f64, bytes)
}

/// The longest of all decisions on new keys.
fn slowest(order: &[u32], decide: impl Fn(IpAddr) -> bool) -> Duration {
    let time = |n: &u32| {
        let begun = Instant::now();
        black_box(decide(attacker(*n)));
        begun.elapsed()
    };
    order.iter().map(time).max().unwrap_or_default()
}

fn race_of_floods(mode: &Mode, capacity: usize) {
    let order = shuffled(10 * capacity);
    let mut ratios = Vec::new();
    for _ in 0..mode.pick(5, 1) {
        let (ours, theirs) = (Ours::new(capacity), governor());
        let (our_time, our_bytes) = flood(&order, |key| ours.decide(key));
        let (their_time, their_bytes) = flood(&order, |key| theirs.check_key(&key).is_ok());
        assert!(ours.store.len() <= capacity);
        // Keys whose sets were full before the store was: two in a thousand.
        assert!(
            our_bytes < capacity as i64,
            "the flood took {our_bytes} bytes"
        );
        println!(
            "flood: {our_time:.0} : {their_time:.0} ns per decision; the flood left {our_bytes} : {their_bytes} bytes"
        );
        ratios.push(our_time / their_time);
    }
    ratios.sort_by(f64::total_cmp);
    println!(
        "flood: {:.2} of governor's time (aim: ≤ 0.5)\n",
        ratios[ratios.len() / 2]
    );
}

fn race_of_insertions(mode: &Mode, capacity: usize) {
    let order = shuffled(capacity);
    let (mut ours, mut theirs) = (Duration::MAX, Duration::MAX);
    for _ in 0..mode.pick(5, 1) {
        let store = Ours::new(capacity);
        ours = ours.min(slowest(&order, |key| store.decide(key)));
        let store = governor();
        theirs = theirs.min(slowest(&order, |key| store.check_key(&key).is_ok()));
    }
    let ratio = theirs.as_nanos() as f64 / ours.as_nanos() as f64;
    println!(
        "slowest insertion, best of five runs: {ours:?} : {theirs:?}, 1/{ratio:.0} (aim: ≤ 1/20)\n"
    );
}

/// What one key was granted: never more than a burst and what came since the beginning.
struct Grants {
    begun: Instant,
    admitted: Vec<u8>,
}

impl Grants {
    fn new(keys: usize) -> Self {
        Self {
            begun: Instant::now(),
            admitted: vec![0; keys],
        }
    }

    fn count_above_limit(&self) -> usize {
        let come = self.begun.elapsed().as_secs() / 10 + 1;
        let most = u64::from(BURST) + come;
        let above = |count: &&u8| u64::from(**count) > most;
        self.admitted.iter().filter(above).count()
    }
}

/// The latency that one decision in a thousand exceeds.
fn p999(mut latencies: Vec<Duration>) -> Duration {
    latencies.sort_unstable();
    latencies[latencies.len() * 999 / 1000]
}

/// Honest clients take their turns until told to stop; one request each in ten seconds.
fn go_on(ours: &Ours, turns: usize, stop: &AtomicBool) -> (usize, usize, Vec<Duration>) {
    let (mut asked, mut admitted, mut latencies) = (0, 0, Vec::new());
    let begun = Instant::now();
    for turn in 0..turns {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        // A thousand clients, each once in twelve seconds.
        let due = Duration::from_micros(12_000) * turn as u32;
        while begun.elapsed() < due && !stop.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_micros(200));
        }
        let at = Instant::now();
        let passed = ours.decide(honest(turn % HONEST));
        latencies.push(at.elapsed());
        asked += 1;
        admitted += usize::from(passed);
    }
    (asked, admitted, latencies)
}

/// All attackers come, five times over and again; every admission is counted.
fn attack(mode: &Mode, capacity: usize) {
    let ours = Ours::new(capacity);
    for n in 0..HONEST {
        assert!(ours.decide(honest(n)));
    }
    let sample = mode.pick(200_000, 1_000);
    let quiet: Vec<Duration> = (0..sample)
        .map(|n| {
            let at = Instant::now();
            black_box(ours.decide(honest(n % HONEST)));
            at.elapsed()
        })
        .collect();
    // What the sample took comes back.
    let ours = Ours::new(capacity);
    for n in 0..HONEST {
        assert!(ours.decide(honest(n)));
    }
    let order = shuffled(10 * capacity);
    let mut grants = Grants::new(order.len());
    let stop = AtomicBool::new(false);
    let (asked, admitted, latencies) = thread::scope(|scope| {
        let honest = scope.spawn(|| go_on(&ours, usize::MAX >> 40, &stop));
        for pass in 0..mode.pick(3, 1) {
            for n in &order {
                // Twice in a row, and again in the next pass.
                for _ in 0..2 {
                    grants.admitted[*n as usize] += u8::from(ours.decide(attacker(*n)));
                }
            }
            assert!(ours.store.len() <= capacity, "pass {pass}");
        }
        stop.store(true, Ordering::Relaxed);
        honest.join().unwrap()
    });
    let above = grants.count_above_limit();
    assert_eq!(above, 0, "keys above their limit");
    let stats = ours.store.stats();
    println!("attack: {} keys above their limit; {stats:?}", above);
    println!("honest clients that were there before: {admitted} of {asked} requests admitted");
    let (calm, busy) = (p999(quiet), p999(latencies));
    println!("p99.9 of a decision: {calm:?} quiet, {busy:?} in the attack (aim: ≤ 10 times)");
}

fn main() {
    let mode = &Mode::from_args();
    let capacity = mode.pick(1_000_000, 2_000);
    if mode.runs("insertion") {
        race_of_insertions(mode, capacity);
    }
    if mode.runs("flood") {
        race_of_floods(mode, capacity);
    }
    if mode.runs("attack") {
        attack(mode, capacity);
    }
}
