//! A fleet in the middle of a roll-out: one node has a wrapper, and the other has none, another setting of it, or another wrapper.

use std::time::Duration;

use support::Random;
use tokio::time::Instant;
use tollgate::{
    Cost, Policy,
    algorithm::AnyRule,
    store::{Ask, BoxStore, CircuitBreakerConfig, Error, LeaseConfig, Store, StoreExt, SyncConfig},
    time::TokioClock,
};

use crate::synced::nodes::{Fleet, PERIOD};

const LIMIT: u64 = 40;
/// The window of the log; all other rules refill next to nothing during a test.
const WINDOW: Duration = Duration::from_secs(2);

/// A wrapper with a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrapper {
    None,
    Deadline(u64),
    Breaker,
    Remembered(usize),
    Blocks,
    BlockAfter(u64),
    /// With a hold in milliseconds.
    Leased(u64),
    /// Ahead by so many units.
    Synced(u64),
}

const ALL: [Wrapper; 13] = [
    Wrapper::None,
    Wrapper::Deadline(50),
    Wrapper::Deadline(1000),
    Wrapper::Breaker,
    Wrapper::Remembered(16),
    Wrapper::Remembered(1000),
    Wrapper::Blocks,
    // Never, in as many calls.
    Wrapper::BlockAfter(1000),
    Wrapper::Leased(20),
    Wrapper::Leased(200),
    Wrapper::Synced(0),
    Wrapper::Synced(5),
    Wrapper::Synced(20),
];

impl Wrapper {
    fn around(self, server: BoxStore<AnyRule, Error>, seed: u64) -> BoxStore<AnyRule, Error> {
        let clock = TokioClock::new();
        match self {
            Self::None => server,
            Self::Deadline(millis) => server.timeout(Duration::from_millis(millis)).boxed(),
            Self::Breaker => server.circuit_breaker(CircuitBreakerConfig::new()).boxed(),
            Self::Remembered(keys) => {
                let remembered = server.remember_refusals::<AnyRule>().clock(clock);
                remembered.capacity(keys).boxed()
            }
            Self::Blocks => server.with_blocks().boxed(),
            Self::BlockAfter(refusals) => {
                let blocks = server.with_blocks().clock(clock);
                let day = Duration::from_secs(86_400);
                blocks.block_after(refusals, WINDOW, day).boxed()
            }
            Self::Leased(millis) => {
                let config = LeaseConfig::new().hold(Duration::from_millis(millis));
                server.leased(config.clock(clock).seed(seed)).boxed()
            }
            Self::Synced(units) => {
                let config = SyncConfig::new().most_ahead(units).nodes(2).period(PERIOD);
                server.synced(config.clock(clock).seed(seed)).boxed()
            }
        }
    }

    /// Returns the units by which the operators' page lets a fleet exceed the limit because of this node.
    fn above(self, other: Self, rule: &AnyRule) -> u64 {
        match (self, rule) {
            (Self::Synced(units), _) => units,
            // As long as the last lease lives, of which others know nothing.
            (Self::Leased(_), AnyRule::SlidingLog(_)) if self != other => LIMIT,
            // The burst that the hold costs: less than a unit is refilled during it.
            (Self::Leased(_), AnyRule::TokenBucket(_)) if self != other => 1,
            _ => 0,
        }
    }
}

/// Returns the instants at which a greedy client was admitted that calls both nodes.
async fn admitted(nodes: [&BoxStore<AnyRule, Error>; 2], rule: &AnyRule) -> Vec<Instant> {
    let (policy, mut random, mut admitted) = (Policy::new("api"), Random::new(1), Vec::new());
    for phase in 0..6 {
        // Alone at first, so that a node gets used to its calls; then both at once, in bursts.
        for _ in 0..30 {
            let node = nodes[match phase {
                0 => 0,
                1 => 1,
                _ => random.below(2) as usize,
            }];
            let ask = Ask::new(&policy, rule, "alice".into(), Cost::ONE);
            let decisions = node.acquire(&[ask]).await.unwrap();
            if decisions.is_admitted() {
                admitted.push(Instant::now());
            }
        }
        tokio::time::sleep(Duration::from_millis(random.below(300))).await;
    }
    admitted
}

/// Returns the most units that count together.
fn most_together(admitted: &[Instant], rule: &AnyRule) -> u64 {
    let together = |from: &Instant| match rule {
        AnyRule::SlidingLog(_) => {
            let within = |at: &&Instant| *at >= from && **at < *from + WINDOW;
            admitted.iter().filter(within).count()
        }
        _ => admitted.len(),
    };
    admitted.iter().map(together).max().unwrap_or(0) as u64
}

/// Each wrapper beside each other one, with two settings of those that have some, under each rule that both accept.
#[tokio::test(start_paused = true)]
async fn nodes_with_different_wrappers_keep_to_the_page() {
    let rules = [
        "token-bucket 40/1h",
        "fixed-window 40/1h",
        "sliding-window 40/1h",
        "sliding-log 40/2s",
        "cascade 38/1h burst=38 > 2/1h burst=2",
        "token-bucket 40/1h & fixed-window 40/1h",
    ];
    let (mut played, mut exceeded) = (0, 0);
    for rule in rules {
        let rule: AnyRule = rule.parse().unwrap();
        for (index, one) in ALL.into_iter().enumerate() {
            for other in ALL.into_iter().skip(index) {
                let fleet = Fleet::new();
                let nodes = [
                    one.around(fleet.server().boxed(), 1),
                    other.around(fleet.server().boxed(), 2),
                ];
                if nodes.iter().any(|node| node.fits(&rule).is_err()) {
                    continue;
                }
                played += 1;
                let admitted = admitted([&nodes[0], &nodes[1]], &rule).await;
                let most = most_together(&admitted, &rule);
                let above = one.above(other, &rule).max(other.above(one, &rule));
                assert!(
                    most <= LIMIT + above,
                    "{rule}, {one:?} beside {other:?}: {most}, {above} above the limit allowed"
                );
                exceeded += u64::from(most > LIMIT);
                // And neither is useless.
                assert!(
                    most >= LIMIT / 2,
                    "{rule}, {one:?} beside {other:?}: {most}"
                );
            }
        }
    }
    assert!(played > 300, "{played}");
    assert!(exceeded > 10, "nothing was hard: {exceeded}");
}

/// Each wrapper inside of each other one: the order is refused when a layer is built, or it keeps to the limit.
#[tokio::test(start_paused = true)]
async fn wrappers_stand_inside_each_other_or_are_refused() {
    let rule: AnyRule = "token-bucket 40/1h".parse().unwrap();
    for outer in ALL {
        for inner in ALL {
            let fleet = Fleet::new();
            let node = |seed| outer.around(inner.around(fleet.server().boxed(), seed), seed);
            let nodes = [node(1), node(2)];
            let is_ahead = matches!(outer, Wrapper::Leased(_) | Wrapper::Synced(_));
            let has_blocks = matches!(inner, Wrapper::Blocks | Wrapper::BlockAfter(_));
            let fits = nodes[0].fits(&rule).map_err(|error| error.to_string());
            assert_eq!(
                fits.is_ok(),
                !(is_ahead && has_blocks),
                "{outer:?} around {inner:?}: {fits:?}"
            );
            // Also if nobody asked whether it fits.
            let admitted = admitted([&nodes[0], &nodes[1]], &rule).await.len() as u64;
            let above = outer.above(outer, &rule).max(inner.above(inner, &rule));
            assert!(
                (LIMIT - 2..=LIMIT + above).contains(&admitted),
                "{outer:?} around {inner:?}: {admitted}"
            );
        }
    }
}
