//! The law of refunds on the stores: in memory in the lock-free table and in the map, at the cap,
//! by compare-and-swap, and on a real Redis by its clock.

use std::{fmt::Debug, sync::LazyLock, time::Duration};

use proptest::prelude::*;
use tollgate::{
    AnyRule, Charge, Policy, TokenBucket,
    key::Key,
    store::{
        Local, LocalBuilder, Store,
        driver::{Ask, Settlement},
    },
    time::{Clock, ManualClock},
};

use super::{
    Op, charged, fills_in,
    memory::{Memory, Ways, driver},
    meter::Meter,
    ops, rules, units,
};

pub(crate) fn policy() -> &'static Policy {
    static POLICY: LazyLock<Policy> = LazyLock::new(|| Policy::new("api"));
    &POLICY
}

/// One key of a store, with its open charges and its meter.
pub(crate) struct Client {
    text: &'static str,
    rule: AnyRule,
    buckets: Vec<TokenBucket>,
    key: Key,
    open: Vec<(usize, Charge)>,
    /// `true` if calls never cost more than was charged. Charges that find no room in a full store
    /// are lost and counted.
    pub(crate) only_refunds: bool,
    pub(crate) meter: Meter,
}

impl Client {
    pub(crate) fn new(text: &'static str, buckets: Vec<TokenBucket>, key: impl Into<Key>) -> Self {
        Self {
            text,
            rule: text.parse().unwrap(),
            key: key.into(),
            open: Vec::new(),
            only_refunds: false,
            meter: Meter::new(&buckets),
            buckets,
        }
    }

    /// Returns the time until its slowest bucket is full, in nanoseconds.
    pub(crate) fn fills_in(&self) -> u64 {
        self.buckets.iter().map(fills_in).min().unwrap()
    }

    /// Makes one charge or settlement. The caller advances the time.
    pub(crate) async fn act<S: Store<AnyRule, Error: Debug>>(&mut self, store: &S, op: Op) {
        match op {
            Op::Pass(_) => {}
            Op::Spend(cost) => {
                let ask = Ask::new(policy(), &self.rule, self.key, units(cost));
                let mut decision = store.acquire(&[ask]).await.unwrap().as_slice()[0];
                if let Some(charge) = decision.take_charge() {
                    let charged = charged(self.text, &decision, self.buckets.len());
                    let call = self.meter.admit(&decision, charged, cost);
                    self.open.push((call, charge));
                }
            }
            Op::Settle(..) if self.open.is_empty() => {}
            Op::Settle(call, actual) => {
                let (call, charge) = self.open.swap_remove(call % self.open.len());
                let actual = if self.only_refunds {
                    actual.min(charge.cost)
                } else {
                    actual
                };
                let settlement = Settlement::new(policy(), &self.rule, self.key, charge, actual);
                store.settle(vec![settlement.unwrap()]).await.unwrap();
                self.meter.settle(call, actual);
            }
        }
    }
}

/// Runs the operations on keys in turn. Returns the admissions that a meter of any key refuses.
async fn hold<S: Store<AnyRule, Error: Debug>>(
    store: &S,
    clock: &ManualClock,
    which: usize,
    keys: u64,
    ops: Vec<(u64, Op)>,
    only_refunds: bool,
) -> Vec<String> {
    let (text, buckets) = rules().swap_remove(which);
    let client = |key| Client {
        only_refunds,
        ..Client::new(text, buckets.clone(), key)
    };
    let mut clients: Vec<_> = (0..keys).map(client).collect();
    for (key, op) in ops {
        let client = &mut clients[(key % keys) as usize];
        match op {
            Op::Pass(part) => clock.advance(Duration::from_nanos(client.fills_in() / 1000 * part)),
            op => client.act(store, op).await,
        }
    }
    clients
        .iter()
        .flat_map(|client| client.meter.refused())
        .collect()
}

fn of_keys(length: usize) -> impl Strategy<Value = Vec<(u64, Op)>> {
    ops(length).prop_flat_map(|ops| {
        let keys = prop::collection::vec(0..6_u64, ops.len());
        (keys, Just(ops)).prop_map(|(keys, ops)| keys.into_iter().zip(ops).collect())
    })
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(work)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: support::cases(1_000) as u32, ..ProptestConfig::default() })]

    /// With room for all keys, and with room for fewer.
    #[test]
    fn an_exact_meter_refuses_nothing_that_memory_admitted(
        which in 0..rules().len(), capacity in prop_oneof![1..4_usize, Just(1_000)], keys in 1..7_u64, ops in of_keys(80),
    ) {
        let clock = ManualClock::default();
        let store: Local<AnyRule, _> = LocalBuilder::new().capacity(capacity).clock(clock.clone()).build();
        let only_refunds = capacity < keys as usize;
        let refused = block_on(hold(&store, &clock, which, keys, ops, only_refunds));
        prop_assert_eq!(refused, Vec::<String>::new());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: support::cases(200) as u32, ..ProptestConfig::default() })]

    #[test]
    fn an_exact_meter_refuses_nothing_that_compare_and_swap_admitted(
        which in 0..rules().len(), keys in 1..4_u64, ops in of_keys(60),
    ) {
        let clock = ManualClock::default();
        let refused = block_on(async {
            let store = driver::<AnyRule>(Memory::new(clock.clone(), Ways::default()));
            hold(&store, &clock, which, keys, ops, false).await
        });
        prop_assert_eq!(refused, Vec::<String>::new());
    }
}

/// A key of the lock-free table stays there if its last charge is refunded. If refunded charges
/// overlap, it moves to the map, and is forgotten when they have passed.
#[test]
fn a_key_with_overlapping_refunds_is_forgotten_when_they_have_passed() {
    let clock = ManualClock::default();
    let store: Local<AnyRule, _> = LocalBuilder::new().capacity(2).clock(clock.clone()).build();
    let mut client = Client::new("token-bucket 100/1m", vec![TokenBucket::per_minute(100)], 1);
    block_on(async {
        for op in [Op::Spend(50), Op::Spend(50), Op::Settle(0, 0)] {
            client.act(&store, op).await;
        }
    });
    let key = client.key;
    let look = || store.look(policy(), &client.rule, &key);
    assert_eq!(look().remaining(), Some(50));
    assert_eq!(look().reset_after(), Duration::from_secs(30));
    clock.advance(Duration::from_secs(60));
    assert_eq!(look().remaining(), Some(100));
    let now = clock.now();
    for other in 2..4_u64 {
        let ask = Ask::new(policy(), &client.rule, other.into(), units(1));
        assert!(store.decide(&ask).is_admitted(), "at {now:?}");
    }
}
