//! The clock that decisions are made by.

use std::time::Duration;

use tollgate::{
    AnyRule, Charge, Cost, Decision, Policy, Timestamp,
    store::{
        Store,
        driver::{Ask, CasStore, CasStoreBuilder, Settlement},
    },
    time::{Clock, ManualClock},
};

use crate::cas::memory::{Memory, Ways};

type Driver = CasStore<Memory, AnyRule>;

const SECOND: Duration = Duration::from_secs(1);

fn node(memory: &Memory, clock: &ManualClock) -> Driver {
    CasStoreBuilder::new(memory.node(0))
        .clock(clock.clone())
        .build()
}

async fn acquire(store: &Driver, rule: &AnyRule) -> Decision {
    let policy = Policy::new("api");
    let ask = [Ask::new(&policy, rule, "alice".into(), Cost::ONE)];
    store.acquire(&ask).await.unwrap().as_slice()[0]
}

/// A key whose worker never rests, after a swap that was lost with the value that is there: the time
/// that came with it is not that of all later decisions.
#[tokio::test(start_paused = true)]
async fn a_lost_swap_does_not_set_the_time_of_a_busy_key() {
    let delay = Duration::from_millis(5);
    let ways = Ways {
        time: true,
        versions: true,
        found: true,
        delay: Some(delay),
        ..Ways::default()
    };
    let clock = ManualClock::new(Timestamp::from_nanos(1_000_000_000_000));
    let (memory, own) = (Memory::new(clock.clone(), ways), ManualClock::default());
    let store = node(&memory, &own);
    memory
        .always_loses
        .store(true, std::sync::atomic::Ordering::Relaxed);
    let rule: AnyRule = RULES[0].parse().unwrap();
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let store = store.clone();
        let rule = rule.clone();
        callers.spawn(async move {
            let mut at = Timestamp::default();
            for _ in 0..50 {
                at = at.max(acquire(&store, &rule).await.at());
            }
            at
        });
    }
    tokio::time::sleep(3 * delay).await;
    memory
        .always_loses
        .store(false, std::sync::atomic::Ordering::Relaxed);
    for _ in 0..100 {
        tokio::time::sleep(delay).await;
        own.advance(SECOND);
    }
    let latest = callers.join_all().await.into_iter().max().unwrap();
    assert!(latest.saturating_since(clock.now()) <= SECOND, "{latest:?}");
}

/// Rules whose states end several times in each run.
const RULES: [&str; 13] = [
    "token-bucket 1/1s burst=5",
    "token-bucket 1/1s burst=6 keep-free=2",
    "token-bucket 1/1s burst=6 initial=2",
    "leaky-bucket 1/1s queue=4",
    "fixed-window 5/1m",
    "fixed-window 5/20s offset=spread",
    "fixed-window 5/30s from=first-call",
    "sliding-window 6/1m slices=4",
    "sliding-log 5/30s",
    "warm-up 6/s over=5s",
    "cascade 4/10s > 9/1m",
    "three-color 4/10s burst=4 peak=1/1s peak-burst=6",
    "token-bucket 1/1s burst=5 & fixed-window 9/20s",
];

/// Hosts, each ahead of the store's clock by so many seconds, that call every so many seconds until
/// they are refused.
struct Hosts<'a> {
    ahead: &'a [u64],
    every: u64,
    /// Each gives back a unit of its last calls before the next ones.
    settles: bool,
}

impl Hosts<'_> {
    /// Returns the units that they are granted and do not give back within so many seconds.
    async fn granted(&self, rule: &AnyRule, seconds: u64) -> u64 {
        let begin = Timestamp::from_nanos(956_000_000_000);
        let at = |ahead: &u64| ManualClock::new(begin.saturating_add(Duration::from_secs(*ahead)));
        let clocks: Vec<_> = self.ahead.iter().map(at).collect();
        let right = ManualClock::new(begin);
        let memory = Memory::new(right.clone(), Ways::default());
        let hosts: Vec<_> = clocks.iter().map(|clock| node(&memory, clock)).collect();
        let mut charges: Vec<Option<Charge>> = hosts.iter().map(|_| None).collect();
        let policy = Policy::new("api");
        let mut granted = 0;
        for round in 0..seconds.div_ceil(self.every) {
            let mut order: Vec<_> = (0..hosts.len()).collect();
            order.rotate_left(round as usize % hosts.len());
            for n in order {
                if let Some(charge) = charges[n].take().filter(|_| self.settles) {
                    let settlement = Settlement::new(&policy, rule, "alice".into(), charge, 0);
                    hosts[n].settle(vec![settlement.unwrap()]).await.unwrap();
                    granted -= 1;
                }
                loop {
                    let mut decision = acquire(&hosts[n], rule).await;
                    if !decision.is_admitted() {
                        break;
                    }
                    granted += 1;
                    charges[n] = decision.take_charge();
                }
            }
            for clock in clocks.iter().chain([&right]) {
                clock.advance(SECOND * self.every as u32);
            }
        }
        granted
    }
}

/// A host that is ahead spends its lead in advance, once, although states end meanwhile by its own
/// clock.
#[tokio::test(start_paused = true)]
async fn clocks_that_differ_admit_what_the_rule_admits_in_their_difference_extra() {
    const SECONDS: u64 = 300;
    for rule in RULES {
        let rule: AnyRule = rule.parse().unwrap();
        let alone = Hosts {
            ahead: &[0],
            every: 1,
            settles: false,
        };
        let least = alone.granted(&rule, SECONDS).await;
        for ahead in [4, 45] {
            let most = alone.granted(&rule, SECONDS + ahead).await;
            for (every, settles) in [(1, false), (1, true), (7, false), (7, true)] {
                let both = Hosts {
                    ahead: &[0, ahead],
                    every,
                    settles,
                };
                let granted = both.granted(&rule, SECONDS).await;
                let about = format!("{rule}: {ahead} s ahead, every {every} s, {settles}");
                assert!(granted <= most, "{about}: {granted} of {most}");
                let is_greedy = every == 1 && !settles;
                assert!(
                    granted >= least * 9 / 10 || !is_greedy,
                    "{about}: {granted} of {least}"
                );
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn all_nodes_decide_by_the_stores_time_if_it_returns_one() {
    let ways = Ways {
        time: true,
        versions: true,
        ..Ways::default()
    };
    let clock = ManualClock::new(Timestamp::from_nanos(1_000_000_000_000));
    let (memory, own) = (Memory::new(clock.clone(), ways), ManualClock::default());
    let (store, rule) = (node(&memory, &own), RULES[0].parse().unwrap());
    for _ in 0..4 {
        assert_eq!(acquire(&store, &rule).await.at(), clock.now());
        // The store's time is extrapolated for a while, and then read again.
        for step in [SECOND / 4, SECOND / 2] {
            own.advance(step);
            clock.advance(step);
            assert_eq!(acquire(&store, &rule).await.at(), clock.now());
        }
        own.advance(60 * SECOND);
        clock.advance(3 * SECOND);
    }
}
