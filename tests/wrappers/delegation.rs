//! Wrappers answer each method as the store inside, but for those in which they differ by intent.

use std::{
    collections::BTreeSet,
    fmt::Debug,
    future::{Ready, ready},
    sync::{Arc, LazyLock, Mutex},
    time::Duration,
};

use tollgate::{
    Cost, Decision, Policy, Timestamp, TokenBucket, Verdict,
    algorithm::Algorithm,
    future::{BoxFuture, SyncFuture},
    key::Key,
    store::{
        Backend, CircuitBreakerConfig, LeaseConfig, Local, Store, StoreError, StoreExt, SyncConfig,
        driver::{
            Ask, Batch, Check, Decisions, Delta, FleetStore, Lines, NodeCounts, Renewed,
            Settlement, StoreId,
        },
    },
    testing::{Alternating, Faulty},
};

/// The methods of `Backend`, `Store` and `FleetStore`.
const METHODS: [&str; 17] = [
    "address",
    "id",
    "unsettled",
    "shard",
    "refuses_beyond_rules",
    "note_refusal",
    "lines",
    "acquire",
    "look",
    "settle",
    "settle_one",
    "renew",
    "reset",
    "fits",
    "fleet",
    "count_node",
    "sync",
];

/// Whose lines of waiting calls the store shows.
static LINES: LazyLock<Local<TokenBucket>> = LazyLock::new(Local::new);

/// A store that answers no method as its default does, and records the calls.
#[derive(Clone, Default)]
struct Marked(Arc<Mutex<BTreeSet<&'static str>>>);

impl Marked {
    fn called(&self, method: &'static str) {
        self.0.lock().unwrap().insert(method);
    }

    fn decide(
        &self,
        method: &'static str,
        count: usize,
    ) -> Check<Ready<Result<Decisions, StoreError>>> {
        self.called(method);
        let decision = Decision::new(Verdict::Allow, Timestamp::default(), 1).with_remaining(41);
        Check::Ready(Ok((0..count).map(|_| decision).collect()))
    }

    fn done(&self, method: &'static str) -> Check<Ready<Result<(), StoreError>>> {
        self.called(method);
        Check::Pending(ready(Ok(())))
    }
}

impl Backend for Marked {
    type Error = StoreError;

    fn address(&self) -> Option<&str> {
        Some("192.0.2.1:7000")
    }
    fn id(&self) -> Option<StoreId> {
        Some(StoreId::of(&self.0))
    }
    fn unsettled(&self) -> Option<u64> {
        Some(7)
    }
    fn shard(&self, _: &Policy, _: &Key) -> u32 {
        5
    }
    fn refuses_beyond_rules(&self) -> bool {
        true
    }
    fn note_refusal(&self, _: &Policy, _: &Key) -> bool {
        true
    }
    fn lines(&self) -> Option<&Arc<Lines>> {
        LINES.lines()
    }
}

impl<Rule> Store<Rule> for Marked {
    type Answer = Ready<Result<Decisions, StoreError>>;
    type Done = Ready<Result<(), StoreError>>;

    fn acquire(&self, asks: &[Ask<'_, Rule>]) -> Check<Self::Answer> {
        self.decide("acquire", asks.len())
    }
    fn look(&self, asks: &[Ask<'_, Rule>]) -> Check<Self::Answer> {
        self.decide("look", asks.len())
    }
    fn settle(&self, _: Vec<Settlement<'_, Rule>>) -> Check<Self::Done> {
        self.done("settle")
    }
    fn renew(&self, _: Settlement<'_, Rule>) -> BoxFuture<Renewed> {
        self.called("renew");
        Box::pin(ready(Renewed::NotMade))
    }
    fn reset(&self, _: &Policy, _: &Key) -> Check<Self::Done> {
        self.done("reset")
    }
    fn fits(&self, _: &Rule) -> Result<(), tollgate::Error> {
        Err(tollgate::Error::new("a test refuses this rule"))
    }
    fn fleet(&self) -> Option<&dyn FleetStore<Rule, Error = StoreError>>
    where
        Rule: Algorithm,
    {
        Some(self)
    }
}

impl<Rule: Algorithm> FleetStore<Rule> for Marked {
    fn count_node(&self, _: &Policy, _: u64) -> Option<BoxFuture<Result<NodeCounts, StoreError>>> {
        let counts = NodeCounts {
            current: 3,
            previous: 4,
        };
        Some(Box::pin(ready(Ok(counts))))
    }
    fn sync(&self, deltas: &[Delta<'_, Rule>]) -> Option<SyncFuture<Rule, StoreError>> {
        let each = deltas.iter().map(|_| Err(StoreError::timeout()));
        Some(Box::pin(ready(Ok(each.collect()))))
    }
}

/// Returns the answer of each method, and for those that change states what was called inside.
async fn answers<S>(store: &S, inside: &Marked) -> Vec<(&'static str, String)>
where
    S: Store<TokenBucket, Error: Debug>,
{
    let (policy, rule, key) = (
        Policy::new("api"),
        TokenBucket::per_hour(9),
        Key::from("ann"),
    );
    let ask = || [Ask::new(&policy, &rule, key, Cost::ONE)];
    let mut answers: Vec<(&'static str, String)> = vec![
        ("address", format!("{:?}", store.address())),
        ("id", format!("{:?}", store.id())),
        ("unsettled", format!("{:?}", store.unsettled())),
        ("shard", store.shard(&policy, &key).to_string()),
        (
            "refuses_beyond_rules",
            store.refuses_beyond_rules().to_string(),
        ),
        (
            "note_refusal",
            store.note_refusal(&policy, &key).to_string(),
        ),
        ("lines", store.lines().is_some().to_string()),
        ("fits", format!("{:?}", store.fits(&rule))),
        ("fleet", store.fleet().is_some().to_string()),
    ];
    let counting = store.fleet().and_then(|store| store.count_node(&policy, 7));
    let counted = match counting {
        Some(counting) => Some(counting.await.unwrap()),
        None => None,
    };
    answers.push(("count_node", format!("{counted:?}")));
    let batch = Batch { node: 1, number: 1 };
    let delta = Delta::new(&policy, &rule, key, batch, (Duration::ZERO, 1));
    let syncing = store.fleet().and_then(|store| store.sync(&[delta]));
    let synced = match syncing {
        Some(syncing) => Some(syncing.await.unwrap().len()),
        None => None,
    };
    answers.push(("sync", format!("{synced:?}")));

    let mut calls = |method: &'static str, remaining: Option<u64>| {
        let called = std::mem::take(&mut *inside.0.lock().unwrap());
        // One settlement is a list of one.
        let was_called = called.contains(method.trim_end_matches("_one"));
        answers.push((method, format!("{was_called}, {remaining:?}")));
    };
    calls("no method", None);
    let acquired = store.acquire(&ask()).await.unwrap();
    calls("acquire", acquired.as_slice()[0].remaining());
    let looked = store.look(&ask()).await.unwrap();
    calls("look", looked.as_slice()[0].remaining());
    let charge = tollgate::Charge::new(Timestamp::default(), 1);
    let settlement = Settlement::new(&policy, &rule, key, charge, 3).unwrap();
    store.settle(vec![settlement]).await.unwrap();
    calls("settle", None);
    let charge = tollgate::Charge::new(Timestamp::default(), 1);
    let settlement = Settlement::new(&policy, &rule, key, charge, 3).unwrap();
    store.settle_one(settlement).await.unwrap();
    calls("settle_one", None);
    let charge = tollgate::Charge::new(Timestamp::default(), 1);
    let renewal = Settlement::new(&policy, &rule, key, charge, 1).unwrap();
    let renewed = store.renew(renewal).await;
    calls("renew", Some(u64::from(renewed == Renewed::Made)));
    store.reset(&policy, &key).await.unwrap();
    calls("reset", None);
    answers
}

/// Returns the methods that a wrapper answers otherwise than the store inside.
async fn differing<S>(wrapper: impl FnOnce(Marked) -> S) -> BTreeSet<&'static str>
where
    S: Store<TokenBucket, Error: Debug>,
{
    let inside = Marked::default();
    let expected = answers(&inside, &inside).await;
    let wrapped = answers(&wrapper(inside.clone()), &inside).await;
    let pairs = expected.iter().zip(&wrapped);
    let differing = pairs.filter(|(expected, wrapped)| expected != wrapped);
    differing.map(|((method, _), _)| *method).collect()
}

macro_rules! differs {
    ($wrapper:expr, $methods:expr) => {
        let methods: &[&str] = &$methods;
        let expected: BTreeSet<_> = methods.iter().copied().collect();
        assert_eq!(differing($wrapper).await, expected, stringify!($wrapper));
    };
}

#[tokio::test]
async fn wrappers_answer_as_the_store_inside() {
    let minute = Duration::from_secs(60);
    differs!(|store| store, []);
    differs!(Arc::new, []);
    differs!(|store: Marked| store.boxed::<TokenBucket>(), []);
    differs!(|store: Marked| store.timeout(minute), []);
    differs!(
        |store: Marked| store.circuit_breaker(CircuitBreakerConfig::new()),
        // It is a settlement, which counts for the circuit.
        ["renew"]
    );
    // They never fail, so nothing inside of them is asked for fleets.
    let fleet = ["fleet", "count_node", "sync"];
    differs!(|store: Marked| store.fail_open(), fleet);
    differs!(
        |store: Marked| store.fall_back_to(Local::new()).share(1, 1),
        fleet
    );
    // Their state is outdated by deltas.
    differs!(|store: Marked| store.remember_refusals(), ["sync"]);
    differs!(|store: Marked| store.with_blocks(), ["sync"]);
    // They do not fit a store that refuses beyond rules.
    // Rules with renewals are refused by them.
    let fleet = ["fits", "sync", "renew"];
    differs!(|store: Marked| store.leased(LeaseConfig::new()), fleet);
    differs!(|store: Marked| store.synced(SyncConfig::new()), fleet);
    // A node that is counted uses up no fault. A renewal is a settlement, which may be at fault.
    differs!(Faulty::new, ["count_node", "renew"]);
    // Two stores have no identity, and a count each.
    differs!(
        |store: Marked| Alternating::new(store.clone(), store),
        ["id", "lines", "unsettled", "renew"]
    );
}

/// A method that is new in the traits is compared above.
#[test]
fn all_methods_are_compared() {
    let source = include_str!("../../src/store/traits.rs");
    let lines = source
        .lines()
        .map_while(|line| (!line.starts_with("#[cfg(test)]")).then_some(line));
    let (mut methods, mut is_trait) = (BTreeSet::new(), false);
    for line in lines {
        if line.starts_with("pub trait ") {
            is_trait = true;
        } else if line == "}" {
            is_trait = false;
        }
        let name = line.strip_prefix("    fn ").filter(|_| is_trait);
        methods.extend(name.and_then(|name| name.split(['(', '<']).next()));
    }
    assert_eq!(methods, METHODS.into_iter().collect());
}
