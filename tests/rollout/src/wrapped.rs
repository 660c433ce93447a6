//! The nodes of a release, each a wrapper around a store.

use std::time::Duration;

use super::{
    OfBlocks, OfCounters, StoreError, leases, offline, sync,
    tollgate::{
        AnyRule,
        store::{Blocks, BoxStore, CircuitBreakerConfig, StoreExt},
    },
};

/// Longer than any call takes.
const DEADLINE: Duration = Duration::from_secs(10);

/// The report of a node about itself.
#[derive(Default)]
pub(super) struct Report {
    /// The number of nodes that it counts.
    pub(super) nodes: u64,
    /// Units that it has not told the store.
    pub(super) unsynced: u64,
    /// Calls that the store failed, and units that it could not take in.
    pub(super) failed: u64,
}

pub(super) struct Node<Rule> {
    pub(super) store: BoxStore<Rule, StoreError>,
    pub(super) report: Box<dyn Fn() -> Report>,
    /// For blocks by hand, if this node has them.
    pub(super) blocks: Option<Blocks<BoxStore<OfBlocks, StoreError>>>,
}

impl<Rule> Node<Rule> {
    fn new(store: BoxStore<Rule, StoreError>) -> Self {
        Self {
            store,
            report: Box::new(Report::default),
            blocks: None,
        }
    }
}

/// Returns the wrapper with a name and a number of units, keys or milliseconds around a store of a
/// rule, unless it is that of leases or blocks.
macro_rules! around {
    ($store:ident, $name:expr, $number:expr) => {
        match $name {
            "none" => Node::new($store),
            "guarded" => {
                let guarded = $store.timeout(DEADLINE);
                Node::new(guarded.circuit_breaker(CircuitBreakerConfig::new()).boxed())
            }
            "remembered" => {
                let remembered = $store.remember_refusals();
                Node::new(remembered.capacity($number as usize).boxed())
            }
            "synced" => {
                let synced = $store.synced(sync($number));
                let stats = synced.clone();
                Node {
                    store: synced.boxed(),
                    blocks: None,
                    report: Box::new(move || {
                        let stats = stats.stats();
                        Report {
                            nodes: stats.nodes,
                            unsynced: stats.unsynced,
                            failed: stats.failed + stats.dropped + stats.lost + offline(&stats),
                        }
                    }),
                }
            }
            other => panic!("expected the name of a wrapper, found `{other}`"),
        }
    };
}

/// Returns blocks around a store.
pub(super) fn blocks(store: BoxStore<OfBlocks, StoreError>) -> Node<AnyRule> {
    let blocks = store.with_blocks();
    Node {
        blocks: Some(blocks.clone()),
        ..Node::new(blocks.boxed())
    }
}

/// Returns another wrapper around a store of any rule.
pub(super) fn any(name: &str, number: u64, store: BoxStore<AnyRule, StoreError>) -> Node<AnyRule> {
    if name != "leased" {
        return around!(store, name, number);
    }
    let leased = store.leased(leases(Duration::from_millis(number)));
    let stats = leased.clone();
    Node {
        store: leased.boxed(),
        blocks: None,
        report: Box::new(move || {
            let stats = stats.stats();
            Report {
                nodes: stats.nodes,
                unsynced: 0,
                failed: stats.failed + stats.lost,
            }
        }),
    }
}

/// Returns a wrapper around counters, which have neither leases nor blocks.
pub(super) fn counted(
    name: &str,
    number: u64,
    store: BoxStore<OfCounters, StoreError>,
) -> Node<OfCounters> {
    around!(store, name, number)
}
