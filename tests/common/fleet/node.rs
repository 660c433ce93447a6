//! A node: a process with leases, which calls at its own pace until its time is over.

use std::{
    cell::{Cell, RefCell},
    env,
    path::PathBuf,
    rc::Rc,
    time::Duration,
};

use support::Random;
use tollgate::{
    Cost, Policy, TokenBucket,
    key::Key,
    store::{Leased, Store, StoreError, StoreExt, driver::Ask},
    time::{Clock, LeaseClock},
};

use super::{
    journal::{Entry, Fate, Journal, Sums},
    limits::{Limit, limits},
};

/// Names the variable of the environment with a node's orders.
pub const VARIABLE: &str = "TOLLGATE_FLEET_NODE";

/// The most calls of a node that wait for an answer. It makes no further ones meanwhile.
const MOST_WAITING: u64 = 200;
/// Calls that a node was too late for, because it was frozen or had no processor, are left out.
const LATE: u64 = 50_000_000;

/// The work of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Orders {
    pub store: String,
    /// The server's URL.
    pub url: String,
    pub journal: PathBuf,
    pub seed: u64,
    /// The number of nodes, which share the demand.
    pub nodes: u64,
    pub keys: u64,
    pub demand: u64,
    /// When the node ends by itself.
    pub until: u64,
}

impl Orders {
    pub fn write(&self) -> String {
        let Self {
            store,
            url,
            journal,
            seed,
            nodes,
            keys,
            demand,
            until,
        } = self;
        let journal = journal.display();
        format!("{store} {url} {seed} {nodes} {keys} {demand} {until} {journal}")
    }

    /// Returns the orders of this process; `None` if it is no node.
    pub fn read() -> Option<Self> {
        let text = env::var(VARIABLE).ok()?;
        let words: Vec<_> = text.splitn(8, ' ').collect();
        let number = |n: usize| words[n].parse().expect("a number");
        Some(Self {
            store: words[0].to_owned(),
            url: words[1].to_owned(),
            seed: number(2),
            nodes: number(3),
            keys: number(4),
            demand: number(5),
            until: number(6),
            journal: words[7].into(),
        })
    }
}

/// The time of the machine's clock, in nanoseconds.
pub fn now() -> u64 {
    LeaseClock::default().now().as_nanos()
}

/// One limit of a node, and when it calls next.
struct Caller<S> {
    index: usize,
    limit: Limit,
    rule: TokenBucket,
    policy: Policy,
    store: Leased<S, TokenBucket>,
    next: u64,
}

/// Calls until the node's time is over. Clones of a store share its connections.
pub async fn serve<S>(orders: &Orders, store: S)
where
    S: Store<TokenBucket, Error = StoreError, Answer: Send + 'static>
        + Clone
        + Send
        + Sync
        + 'static,
{
    let journal = Rc::new(RefCell::new(Journal::append_to(&orders.journal)));
    let waiting = Rc::new(Cell::new(0));
    let mut random = Random::new(orders.seed);
    let limits = limits(orders.keys, orders.demand).into_iter().enumerate();
    let mut callers: Vec<_> = limits
        .map(|(index, limit)| Caller {
            index,
            limit,
            rule: limit.rule(),
            policy: Policy::new(limit.name),
            store: store.clone().leased(limit.config().seed(orders.seed)),
            next: now(),
        })
        .collect();
    let tasks = tokio::task::LocalSet::new();
    let calls = tasks.run_until(async {
        // Bounded by the time.
        while now() < orders.until {
            for caller in &mut callers {
                while caller.next <= now() {
                    let gap = 1_000_000_000 * orders.nodes / caller.limit.demand;
                    caller.next += random.below(2 * gap) + 1;
                    if caller.next + LATE < now() {
                        caller.next = now();
                    }
                    if waiting.get() < MOST_WAITING {
                        waiting.set(waiting.get() + 1);
                        let key = caller.limit.key(&mut random);
                        let call = call(caller, key, Rc::clone(&journal));
                        let waiting = Rc::clone(&waiting);
                        tokio::task::spawn_local(async move {
                            call.await;
                            waiting.set(waiting.get() - 1);
                        });
                    }
                }
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    calls.await;
    for caller in &callers {
        let stats = caller.store.stats();
        let sums = Sums {
            asked: stats.asked,
            admitted: stats.admitted,
            refused: stats.refused,
            granted: stats.granted,
            expired: stats.expired,
        };
        let sum = stats.spent + stats.left + stats.expired + stats.returned + stats.lost;
        assert_eq!(stats.granted, sum, "{stats:?}");
        journal.borrow_mut().end(caller.index, &sums);
    }
}

fn call<S>(
    caller: &Caller<S>,
    key: u64,
    journal: Rc<RefCell<Journal>>,
) -> impl Future<Output = ()> + use<S>
where
    S: Store<TokenBucket, Error = StoreError, Answer: Send + 'static> + Send + Sync + 'static,
{
    let (store, policy, rule) = (caller.store.clone(), caller.policy.clone(), caller.rule);
    let limit = caller.index;
    async move {
        let from = now();
        let ask = Ask::new(&policy, &rule, Key::from(key), Cost::ONE);
        let answer = store.acquire(&[ask]).await;
        let to = now();
        let fate = match answer {
            Ok(decisions) if decisions.is_admitted() => Fate::Admitted,
            Ok(_) => Fate::Refused,
            Err(error) if error.is_unsupported() => panic!("{error}"),
            Err(_) => Fate::Failed,
        };
        journal.borrow_mut().write(&Entry {
            limit,
            key,
            fate,
            from,
            to,
        });
    }
}
