//! The store in memory under attack: ten million distinct keys through room for a million, while a
//! thousand regular clients go on; and the slowest insertion on the way to a million.
#![allow(
    clippy::disallowed_methods,
    clippy::float_arithmetic,
    clippy::unwrap_used,
    reason = "a benchmark reads clocks, prints ratios, and stops where something is odd"
)]

use std::{
    collections::HashMap,
    hint::black_box,
    net::{IpAddr, Ipv4Addr},
    num::NonZeroU32,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use governor::DefaultKeyedRateLimiter;
use support::{
    Random,
    bench::Mode,
    counting::{Counting, bytes_kept},
};
use tollgate::{
    Cost, Policy, TokenBucket,
    algorithm::Algorithm,
    store::{Local, LocalBuilder, driver::Ask},
    time::{Clock, ManualClock},
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
        Self::under(rule(), capacity)
    }

    fn under(rule: TokenBucket, capacity: usize) -> Self {
        Self {
            store: LocalBuilder::new().capacity(capacity).build(),
            policy: Policy::new("flood"),
            rule,
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
    Random::new(8).shuffle(&mut order);
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
        // The first call creates the table.
        ours.decide(attacker(order[0]));
        let (our_time, our_bytes) = flood(&order, |key| ours.decide(key));
        let (their_time, their_bytes) = flood(&order, |key| theirs.check_key(&key).is_ok());
        assert!(ours.store.len() <= capacity);
        // Keys whose sets were full before the store was: less than one in a thousand.
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
        "flood: {:.2} of governor's time (aim: ≤ 0.6)\n",
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

/// The latency that one decision in a thousand exceeds.
fn p999(mut latencies: Vec<Duration>) -> Duration {
    latencies.sort_unstable();
    latencies[latencies.len() * 999 / 1000]
}

/// Honest clients ask one after the other, as fast as they can, until told to stop.
fn go_on(ours: &Ours, turns: usize, stop: &AtomicBool) -> Vec<Duration> {
    let turn = |n: usize| {
        let at = Instant::now();
        black_box(ours.decide(honest(n % HONEST)));
        at.elapsed()
    };
    (0..turns)
        .take_while(|_| !stop.load(Ordering::Relaxed))
        .map(turn)
        .collect()
}

/// All attackers come, one after the other, and come back more often than their bursts last; every
/// admission is counted.
fn attack(mode: &Mode, capacity: usize) {
    // Nothing comes back while this runs.
    let ours = Ours::under(TokenBucket::per_day(1).burst(BURST.into()), capacity);
    let order = shuffled(10 * capacity);
    let never = AtomicBool::new(false);
    let stop = AtomicBool::new(false);
    let turns = mode.pick(2_000_000, 2_000);
    let quiet = go_on(&ours, turns, &never);
    let mut admitted = vec![0_u8; order.len()];
    // Honest clients have spent what they had: both times, they are refused.
    let busy = thread::scope(|scope| {
        let honest = scope.spawn(|| go_on(&ours, 30 * turns, &stop));
        for _ in 0..BURST + 2 {
            for n in &order {
                admitted[*n as usize] += u8::from(ours.decide(attacker(*n)));
            }
            assert!(ours.store.len() <= capacity);
        }
        stop.store(true, Ordering::Relaxed);
        honest.join().unwrap()
    });
    let above = admitted
        .iter()
        .filter(|count| u32::from(**count) > BURST)
        .count();
    assert_eq!(above, 0, "keys above their limit");
    let (calm, busy) = (p999(quiet), p999(busy));
    let ratio = busy.as_nanos() as f64 / calm.as_nanos() as f64;
    println!(
        "attack: {above} keys above their limit; {:?}",
        ours.store.stats()
    );
    println!(
        "p99.9 of a decision: {calm:?} quiet, {busy:?} in the attack, {ratio:.1} (aim: ≤ 10)\n"
    );
}

/// A group of clients, and its requests a minute.
#[derive(Clone, Copy)]
struct Crowd {
    first: u32,
    clients: u32,
    per_minute: u64,
    /// The second in which they appear.
    from: u64,
}

/// The share that a capped store admits of what one without a cap admits: attackers, clients that
/// were there before, and clients that come in the middle.
fn served(mode: &Mode) {
    let capacity = mode.pick(2_000, 200);
    println!("Share that is served of what a store without a cap would serve, per cent;");
    println!(
        "ten at once and ten a minute; attackers ask 20 times a minute, all others 5 times.\n"
    );
    println!(
        "| attackers' keys : capacity | attackers | clients from before | clients that come later |"
    );
    println!("|---|---|---|---|");
    for tenths in [5, 10, 15, 20, 50, 100] {
        let crowds = [
            Crowd {
                first: 0,
                clients: capacity as u32 * tenths / 10,
                per_minute: 20,
                from: 10,
            },
            Crowd {
                first: 1 << 20,
                clients: capacity as u32 / 20,
                per_minute: 5,
                from: 0,
            },
            Crowd {
                first: 2 << 20,
                clients: capacity as u32 / 20,
                per_minute: 5,
                from: 60,
            },
        ];
        let [attackers, before, later] = shares(&crowds, capacity);
        println!(
            "| {}.{} | {attackers:.0} | {before:.0} | {later:.0} |",
            tenths / 10,
            tenths % 10
        );
    }
    println!();
}

fn shares(crowds: &[Crowd; 3], capacity: usize) -> [f64; 3] {
    let (rule, policy) = (TokenBucket::per_minute(10), Policy::new("crowds"));
    let clock = ManualClock::default();
    let store: Local<TokenBucket, _> = LocalBuilder::new()
        .capacity(capacity)
        .clock(clock.clone())
        .build();
    let mut uncapped: HashMap<IpAddr, _> = HashMap::new();
    let mut random = Random::new(9);
    let (mut ours, mut all) = ([0_u64; 3], [0_u64; 3]);
    // Two minutes in tenths of a second; in each, who asks is drawn.
    for tenth in 0..1200_u64 {
        clock.advance(Duration::from_millis(100));
        for (n, crowd) in crowds.iter().enumerate() {
            if tenth < crowd.from * 10 {
                continue;
            }
            for client in 0..crowd.clients {
                if random.next_u64() % 600 >= crowd.per_minute {
                    continue;
                }
                let key = attacker(crowd.first + client);
                let ask = Ask::new(&policy, &rule, key.into(), Cost::ONE);
                ours[n] += u64::from(store.decide(&ask).is_admitted());
                let state = uncapped.entry(key).or_default();
                let step = rule.step(state, clock.now(), Cost::ONE);
                all[n] += u64::from(step.decision().is_admitted());
            }
        }
    }
    std::array::from_fn(|n| 100.0 * ours[n] as f64 / all[n].max(1) as f64)
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
    if mode.runs("served") {
        served(mode);
    }
}
