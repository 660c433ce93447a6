//! Nodes of both releases with wrappers, beside each other and beside nodes without any, on one
//! store.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use support::Random;
use tokio::{sync::Semaphore, time::sleep};

use super::{
    TIMED, all,
    exact::{RULES, assert_agree},
    release::{COUNTERS, Rollout, STORES, Target, stores_of},
};

/// A wrapper, with its settings in the former release and in this one: units, keys or milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wrapper {
    name: &'static str,
    settings: [u64; 2],
}

const NONE: Wrapper = wrapper("none", [0; 2]);
const LEASED: Wrapper = wrapper("leased", [200, 50]);
const BLOCKS: Wrapper = wrapper("blocks", [0; 2]);
const SYNCED: Wrapper = wrapper("synced", [3, 2]);

const WRAPPERS: [Wrapper; 7] = [
    NONE,
    // A deadline inside of a circuit breaker.
    wrapper("guarded", [0; 2]),
    wrapper("remembered", [1000, 100]),
    BLOCKS,
    LEASED,
    SYNCED,
    // The store decides, and rules may be such that cannot be told later.
    wrapper("synced", [0; 2]),
];

const fn wrapper(name: &'static str, settings: [u64; 2]) -> Wrapper {
    Wrapper { name, settings }
}

/// A node: the number of its release, and its name there.
#[derive(Clone, Copy, Debug)]
struct Node {
    release: usize,
    name: &'static str,
}

impl Node {
    fn new(release: usize, store: &str, wrapper: Wrapper) -> Self {
        let name = format!("{store}/{}/{}", wrapper.name, wrapper.settings[release]);
        Self {
            release,
            name: name.leak(),
        }
    }

    async fn ask(self, rollout: &Rollout, command: &str, target: Target<'_>, calls: u64) -> String {
        let release = &rollout.releases[self.release];
        let target = Target {
            store: self.name,
            ..target
        };
        release.call(command, target, [calls, 0]).await.1
    }

    /// Makes calls until two are refused. Returns the number of those that were admitted.
    async fn calls(self, rollout: &Rollout, target: Target<'_>, calls: u64) -> u64 {
        let admitted = self.ask(rollout, "calls", target, calls).await;
        admitted.parse().unwrap()
    }

    async fn fits(self, rollout: &Rollout, target: Target<'_>) -> bool {
        self.ask(rollout, "fits", target, 0).await == "true"
    }

    /// Returns the number of nodes that it counts, the units that it has not told, and its
    /// failures.
    async fn report(self, rollout: &Rollout) -> [u64; 3] {
        let target = Target {
            store: self.name,
            key: "-",
            rule: "-",
        };
        let report = self.ask(rollout, "report", target, 0).await;
        let numbers: Vec<_> = report.split(' ').map(|n| n.parse().unwrap()).collect();
        numbers.try_into().unwrap()
    }
}

/// Returns the stores of a rule, also Redis for a log, which each release keeps in a place of its
/// own there.
fn all_stores_of(rule: &str) -> impl Iterator<Item = &'static str> {
    let others = stores_of(rule).filter(|store| *store != STORES[0]);
    [STORES[0]].into_iter().chain(others)
}

/// Returns the units by which the operators' page lets the nodes exceed a limit, of which some are
/// without a wrapper.
fn above(wrappers: [Wrapper; 2]) -> u64 {
    let ahead = wrappers.into_iter().enumerate();
    let ahead = ahead.filter(|(_, wrapper)| wrapper.name == "synced");
    ahead
        .map(|(release, wrapper)| wrapper.settings[release])
        .sum()
}

/// Plays four nodes under one key: of each release one with a wrapper and one without. The nodes of
/// the `first` release come first, and go on beside the others.
async fn play(rollout: &Rollout, target: Target<'_>, nodes: [[Node; 2]; 2], first: usize) -> u64 {
    let mut random = Random::new(target.key.len() as u64);
    let mut admitted = 0;
    for release in [first, 1 - first] {
        let [wrapped, plain] = nodes[release];
        // So that the first one has leases, or a view, before the others begin.
        for (node, calls) in [(wrapped, 2 + random.below(2)), (plain, 1)] {
            admitted += node.calls(rollout, target, calls).await;
        }
    }
    let mut order = nodes.concat();
    if random.below(2) == 0 {
        order.reverse();
    }
    let turn = random.below(4) as usize;
    order.rotate_left(turn);
    for node in order {
        admitted += node.calls(rollout, target, 30).await;
    }
    // What those that came last have left in the store.
    for [_, plain] in nodes {
        admitted += plain.calls(rollout, target, 30).await;
    }
    admitted
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrappers_of_both_releases_keep_to_the_page() {
    let _alone = TIMED.write().await;
    let rollout = Rollout::start().await;
    let mut tasks = Vec::new();
    // The servers answer in time if they are not asked for all at once.
    let permits = Arc::new(Semaphore::new(32));
    // The keys that were played, and the nodes of each wrapper.
    let played = Arc::<Mutex<Vec<_>>>::default();
    let mut all_nodes = HashMap::new();
    let pairs = || {
        WRAPPERS
            .into_iter()
            .flat_map(|old| WRAPPERS.map(|new| [old, new]))
    };
    for (rule, limit) in RULES {
        for store in all_stores_of(rule) {
            for wrappers in pairs() {
                let do_not_compile = |one: &Wrapper| [LEASED, BLOCKS].contains(one);
                if store == COUNTERS && wrappers.iter().any(do_not_compile) {
                    continue;
                }
                let node = |release, wrapper| Node::new(release, store, wrapper);
                let nodes = [0, 1].map(|n| [node(n, wrappers[n]), node(n, NONE)]);
                let [[old, _], [new, _]] = nodes;
                all_nodes.extend([old, new].map(|node| ((node.release, node.name), node)));
                for first in [0, 1] {
                    let key = format!("{first}:{}:{}:{rule}", old.name, new.name);
                    let key = &*key.replace(' ', "_").leak();
                    let target = Target { store, key, rule };
                    let (rollout, played) = (Arc::clone(&rollout), Arc::clone(&played));
                    let permits = Arc::clone(&permits);
                    tasks.push(async move {
                        let _permit = permits.acquire().await;
                        for node in [old, new] {
                            if !node.fits(&rollout, target).await {
                                return;
                            }
                        }
                        let admitted = play(&rollout, target, nodes, first).await;
                        let is_shared = stores_of(rule).any(|shared| shared == store);
                        let limits = if is_shared { limit } else { 2 * limit };
                        let above = above(wrappers);
                        // Units of leases that end unspent are missing.
                        let least = match wrappers.contains(&LEASED) {
                            true => limits / 2,
                            false => limits,
                        };
                        assert!(
                            (least..=limits + above).contains(&admitted),
                            "{target:?}: {admitted} of {limits}, {above} above it allowed"
                        );
                        played.lock().unwrap().push((target, limit, is_shared));
                    });
                }
            }
        }
    }
    all(tasks).await;
    for node in all_nodes.into_values() {
        loop {
            let [_, unsynced, failed] = node.report(&rollout).await;
            assert_eq!(failed, 0, "{node:?}");
            if unsynced == 0 {
                break;
            }
            sleep(Duration::from_millis(10)).await;
        }
    }
    // Both releases read alike what all have written.
    let played = std::mem::take(&mut *played.lock().unwrap());
    assert!(played.len() > 1000, "{}", played.len());
    let agree = played.into_iter().filter(|(_, _, is_shared)| *is_shared);
    let agree = agree.map(|(target, limit, _)| {
        let (rollout, permits) = (Arc::clone(&rollout), Arc::clone(&permits));
        async move {
            let _permit = permits.acquire().await;
            assert_agree(&rollout.releases, target, 1, limit).await;
        }
    });
    all(agree).await;
    rollout.end().await;
}

/// A node of either release counts those of both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_of_both_releases_are_counted_together() {
    let period = || {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        now.as_secs() / 10
    };
    let rule = "fixed-window 8/3650d";
    for store in STORES.into_iter().chain([COUNTERS]) {
        let leased = if store == COUNTERS { SYNCED } else { LEASED };
        loop {
            let (rollout, began) = (Rollout::start().await, period());
            let mut counted = Vec::new();
            for (n, wrapper) in [SYNCED, SYNCED, leased, leased, SYNCED]
                .into_iter()
                .enumerate()
            {
                let mut node = Node::new(n % 2, store, wrapper);
                node.name = format!("{}/{n}", node.name).leak();
                // Counts itself beside one of its calls to the store.
                let mut nodes = 0;
                for key in 0.. {
                    let key = &*format!("{n}:{key}");
                    node.calls(&rollout, Target { store, key, rule }, 1).await;
                    [nodes, ..] = node.report(&rollout).await;
                    if nodes > 0 {
                        break;
                    }
                }
                counted.push(nodes);
            }
            // Those of a period are complete once it is over.
            if period() == began {
                assert_eq!(counted, [1, 2, 3, 4, 5], "{store}");
                break;
            }
        }
    }
}

/// True if a release refuses keys that the other one has blocked.
const SEE_EACH_OTHER: bool = false;

/// Each release sees its own blocks, on each of its nodes. Limits are shared.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_release_sees_its_own_blocks() {
    let _alone = TIMED.write().await;
    let rollout = Rollout::start().await;
    let mut tasks = Vec::new();
    for (rule, limit) in RULES {
        for store in stores_of(rule).filter(|store| *store != COUNTERS) {
            for first in [0, 1] {
                let key = &*format!("{first}:{rule}").replace(' ', "_").leak();
                let target = Target { store, key, rule };
                let rollout = Arc::clone(&rollout);
                tasks.push(async move {
                    let node = |release: usize, number: &str| {
                        let mut node = Node::new(release, store, BLOCKS);
                        node.name = format!("{}/{number}", node.name).leak();
                        node
                    };
                    let own = [node(first, "a"), node(first, "b")];
                    let other = node(1 - first, "a");
                    let block = |node: Node, millis| node.ask(&rollout, "block", target, millis);
                    let calls = |node: Node, calls| node.calls(&rollout, target, calls);
                    let day = 86_400_000;
                    block(own[0], day).await;
                    for node in own {
                        assert_eq!(calls(node, 2).await, 0, "{node:?}, {target:?}");
                    }
                    let by_other = calls(other, 2).await;
                    let expected = if SEE_EACH_OTHER { 0 } else { 2 };
                    assert_eq!(by_other, expected, "{other:?}, {target:?}");
                    // Both block the key. Who removes a block removes both: a reset forgets all
                    // kinds of states of a key.
                    block(other, day).await;
                    assert_eq!(calls(other, 2).await, 0, "{other:?}, {target:?}");
                    block(own[1], 0).await;
                    // What is left of the one limit, without what was refused.
                    let mut admitted = by_other + calls(own[0], 1).await;
                    assert_eq!(admitted, by_other + 1, "{target:?}");
                    for node in [other, own[1], own[0]] {
                        admitted += calls(node, 30).await;
                    }
                    assert_eq!(admitted, limit, "{target:?}");
                });
            }
        }
    }
    all(tasks).await;
    rollout.end().await;
}
