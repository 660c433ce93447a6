//! Fleets in the middle of a roll-out: nodes without a wrapper, with it, with other settings of it,
//! and with other wrappers, on one store.

mod inside;
mod leases;
mod meter;
mod wrapper;

use std::{collections::HashMap, time::Duration};

use support::Random;
use tokio::time::Instant;
use tollgate::{
    Cost, Policy,
    algorithm::AnyRule,
    store::{
        BoxStore, Store, StoreError,
        driver::{Ask, NodeCounts},
    },
};

use self::{
    meter::Meter,
    wrapper::{ALL, Cost as Reason, Wrapper, above},
};
use crate::synced::nodes::Fleet;

type Node = BoxStore<AnyRule, StoreError>;

/// A rule of each kind, with its limit. All but the second bucket and the first log refill next to
/// nothing during a test.
const RULES: [(&str, Meter); 15] = [
    ("token-bucket 12/1h", Meter::Total(12)),
    (
        "token-bucket 20/1s",
        Meter::Bucket(20, Duration::from_millis(50)),
    ),
    ("token-bucket 8/1h initial=12 keep=1d", Meter::Total(12)),
    ("leaky-bucket 1/1h queue=11", Meter::Total(12)),
    ("fixed-window 12/1h", Meter::Total(12)),
    ("fixed-window 12/1d from=first-call", Meter::Total(12)),
    ("sliding-window 12/1h", Meter::Total(12)),
    ("sliding-window 12/1h slices=4", Meter::Total(12)),
    ("sliding-log 12/2s", Meter::Log(12, Duration::from_secs(2))),
    ("warm-up-spaced 1/1h over=5h", Meter::Total(3)),
    ("cascade 10/1h burst=10 > 2/1h burst=2", Meter::Total(12)),
    ("three-color 4/1h peak=12/1h", Meter::Total(12)),
    ("token-bucket 14/1h & fixed-window 12/1h", Meter::Total(12)),
    (
        "sliding-window 12/1h & token-bucket 14/1h",
        Meter::Total(12),
    ),
    ("fixed-window 12/1h & sliding-log 14/1h", Meter::Total(12)),
];

/// Makes calls of one client at a node, one after the other, until two are refused. Returns the
/// instants at which it was admitted.
async fn call(node: &Node, rule: &AnyRule, key: &'static str, calls: u64) -> Vec<Instant> {
    let (policy, mut admitted, mut refused) = (Policy::new("api"), Vec::new(), 0);
    for _ in 0..calls {
        let ask = Ask::new(&policy, rule, key.into(), Cost::ONE);
        let decisions = node.acquire(&[ask]).await.unwrap();
        if decisions.is_admitted() {
            admitted.push(Instant::now());
        } else {
            refused += 1;
        }
        if refused == 2 {
            break;
        }
    }
    admitted
}

/// Plays a greedy client that calls all nodes. Returns the sorted instants at which it was
/// admitted.
///
/// The nodes get used to the client first. After a pause, those that come first take what the store
/// has, and the others what they believe that it has.
async fn play(
    nodes: &[Node],
    rule: &AnyRule,
    limit: u64,
    pause: Duration,
    seed: u64,
) -> Vec<Instant> {
    let (mut random, mut admitted) = (Random::new(seed), Vec::new());
    // Most is left in the store.
    let most = (limit / nodes.len() as u64 / 2).max(1);
    for node in nodes {
        admitted.extend(call(node, rule, "alice", 1 + random.below(most)).await);
    }
    tokio::time::sleep(pause).await;
    for node in nodes {
        admitted.extend(call(node, rule, "alice", limit + 2).await);
    }
    for _ in 0..2 {
        let pause = random.below(2200);
        tokio::time::sleep(Duration::from_millis(pause)).await;
        for _ in nodes {
            let node = &nodes[random.below(nodes.len() as u64) as usize];
            admitted.extend(call(node, rule, "alice", limit + 2).await);
        }
    }
    admitted.sort_unstable();
    admitted
}

/// The fleets that were played.
#[derive(Default)]
struct Excess {
    fleets: u64,
    /// The least difference to the bound, where it has one reason.
    least_room: HashMap<Reason, u64>,
}

impl Excess {
    /// Plays a fleet under each rule that all its nodes accept.
    async fn play(&mut self, wrappers: &[Wrapper], seed: u64) {
        let mut wrappers = wrappers.to_vec();
        wrappers.sort_by_key(|one| one.comes());
        let has_leases = wrappers.iter().any(|one| matches!(one, Wrapper::Leased(_)));
        // Before the leases end, or after all is pushed.
        let pause = Duration::from_millis(if has_leases { 150 } else { 500 });
        for (text, meter) in RULES {
            let rule: AnyRule = text.parse().unwrap();
            let fleet = Fleet::new();
            let number = wrappers.len() as u64;
            let nodes = wrappers.iter().zip(1..);
            let nodes = nodes.map(|(one, seed)| one.node(&fleet, number, seed));
            let nodes: Vec<Node> = nodes.collect();
            if nodes.iter().any(|node| node.fits(&rule).is_err()) {
                continue;
            }
            if wrappers
                .iter()
                .any(|one| matches!(one, Wrapper::Counted(_)))
            {
                // All nodes count themselves, and hear of each other in the next period.
                for _ in 0..2 {
                    for node in &nodes {
                        call(node, &rule, "bob", 1).await;
                    }
                    tokio::time::sleep(NodeCounts::PERIOD).await;
                }
            }
            let admitted = play(&nodes, &rule, meter.limit(), pause, seed).await;
            let excess = meter.excess(&admitted);
            let (above, reasons) = above(&wrappers, &rule, meter);
            assert!(
                excess <= above,
                "{rule}, {wrappers:?}: {excess} above the limit, {above} allowed by {reasons:?}"
            );
            if let [reason] = *reasons {
                let room = self.least_room.entry(reason).or_insert(u64::MAX);
                *room = (above - excess).min(*room);
            }
            // And none is useless.
            let least = meter.limit() / 2;
            assert!(
                admitted.len() as u64 >= least,
                "{rule}, {wrappers:?}: {}",
                admitted.len()
            );
            self.fleets += 1;
        }
    }

    /// Checks that so many fleets were played, and that bounds of one unit less would not hold.
    /// `leases` reaches those of leases.
    fn assert_exact(&self, fleets: u64) {
        assert!(self.fleets >= fleets, "{}", self.fleets);
        for reason in [Reason::Ahead, Reason::AheadBesideOthers] {
            let room = self.least_room.get(&reason);
            assert_eq!(room, Some(&0), "{reason:?}");
        }
    }
}

/// Each wrapper beside each other one, with two settings of those that have some.
#[tokio::test(start_paused = true)]
async fn fleets_of_two_keep_to_the_page() {
    let mut excess = Excess::default();
    for (index, one) in ALL.into_iter().enumerate() {
        for other in ALL.into_iter().skip(index) {
            excess.play(&[one, other], index as u64).await;
        }
    }
    excess.assert_exact(1200);
}

/// Each three wrappers. One that comes twice has another setting the second time.
#[tokio::test(start_paused = true)]
async fn fleets_of_three_keep_to_the_page() {
    const KINDS: [&[Wrapper]; 7] = [
        &[Wrapper::None],
        &[Wrapper::Deadline(50), Wrapper::Deadline(1000)],
        &[Wrapper::Breaker],
        &[Wrapper::Remembered(16), Wrapper::Remembered(1000)],
        &[Wrapper::Blocks, Wrapper::BlockAfter(1000)],
        &[Wrapper::Leased(20), Wrapper::Leased(200)],
        &[Wrapper::Synced(5), Wrapper::Counted(50), Wrapper::Synced(2)],
    ];
    let setting = |kind: usize, n: usize| KINDS[kind][n % KINDS[kind].len()];
    let mut excess = Excess::default();
    for a in 0..KINDS.len() {
        for b in a..KINDS.len() {
            for c in b..KINDS.len() {
                let fleet = [
                    setting(a, 0),
                    setting(b, usize::from(a == b)),
                    setting(c, usize::from(a == c) + usize::from(b == c)),
                ];
                excess.play(&fleet, (a + 10 * b + 100 * c) as u64).await;
            }
        }
    }
    excess.assert_exact(950);
}

/// A node without a wrapper beside four with one. The four are the lines of the plane of order
/// three, so that each pair of the thirteen settings is in one fleet.
#[tokio::test(start_paused = true)]
async fn fleets_of_five_keep_to_the_page() {
    const LINE: [usize; 4] = [0, 1, 3, 9];
    let settings = &ALL[1..];
    let mut excess = Excess::default();
    for first in 0..settings.len() {
        let line = LINE.map(|point| settings[(first + point) % settings.len()]);
        let [a, b, c, d] = line;
        excess
            .play(&[Wrapper::None, a, b, c, d], first as u64)
            .await;
    }
    // All nodes of a fleet are ahead.
    let synced = [Wrapper::Synced(5), Wrapper::Synced(2)];
    let [a, b] = synced;
    excess.play(&[a, b, Wrapper::Counted(50), b, a], 0).await;
    excess.assert_exact(120);
}
