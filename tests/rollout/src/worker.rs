//! The commands of a worker, written once and compiled for each release.
//!
//! A line is `id command store key number number rule`, and its answer `id answer`:
//!
//! | command | numbers | answer |
//! |---|---|---|
//! | `acquire` | the cost | a decision: `verdict wait at remaining class`, times in nanoseconds |
//! | `settle` | the `id` of the charge, the actual cost | `done` |
//! | `flood` | the cost, milliseconds | the decisions of two callers during that time, separated by `;` |
//! | `reset` | | `done` |
//! | `unreadable` | | the number of states that this release could not read |
//! | `calls` | a number of calls of one unit | the number of those that were admitted until two were refused |
//! | `block` | milliseconds, or 0 to unblock | `done` |
//! | `fits` | | `true` if the store accepts the rule |
//! | `report` | | the nodes that this one counts, the units that it has not told the store, and its failures |
//!
//! A store is `redis`, `swaps` or `counters`, or a node with one of these: `redis/leased/200` has
//! leases of 200 ms. A further word distinguishes nodes.
//!
//! The answer to a failed command is `error text`.

use std::{
    cell::RefCell,
    collections::HashMap,
    fmt::Display,
    io::{Write, stdout},
    rc::Rc,
    str::FromStr,
    time::Duration,
};

use tokio::{
    io::{AsyncBufReadExt, BufReader, stdin},
    task::LocalSet,
    time::{Instant, sleep},
};

use super::{
    Ask, CasStoreBuilder, CounterStoreBuilder, OfBlocks, OfCounters, Settlement, StoreError,
    tollgate::{
        AnyRule, Charge, Cost, Decision, Policy, Verdict,
        key::Key,
        store::{Memcached, MemcachedConnection, MemcachedCounters, Redis, Store, StoreExt},
    },
    wrapped::{self, Node, Report},
};

const PREFIX: &str = "rollout";
/// Long, because a server on a busy machine may answer late.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause of a caller after a refusal.
const PAUSE: Duration = Duration::from_millis(30);

struct Worker {
    policy: Policy,
    redis: Redis<AnyRule>,
    swaps: Memcached<AnyRule>,
    redis_of_blocks: Redis<OfBlocks>,
    swaps_of_blocks: Memcached<OfBlocks>,
    counters: MemcachedCounters<OfCounters>,
    connection: MemcachedConnection,
    /// The charges of `acquire`, by the `id` of their command.
    charges: RefCell<HashMap<u64, Charge>>,
    nodes: RefCell<HashMap<String, Rc<Node<AnyRule>>>>,
    counting_nodes: RefCell<HashMap<String, Rc<Node<OfCounters>>>>,
}

struct Command {
    id: u64,
    name: String,
    store: String,
    key: Key,
    numbers: [u64; 2],
    rule: String,
}

/// Connects to both servers and executes commands concurrently, until the input ends.
pub(crate) async fn serve(redis: &str, memcached: &str) {
    let redis_of_blocks = Redis::<OfBlocks>::builder(redis)
        .prefix(PREFIX)
        .response_timeout(RESPONSE_TIMEOUT);
    let redis = Redis::<AnyRule>::builder(redis)
        .prefix(PREFIX)
        .response_timeout(RESPONSE_TIMEOUT);
    let connection = MemcachedConnection::builder(memcached).response_timeout(RESPONSE_TIMEOUT);
    let connection = connection.connect().await.expect("a memcached");
    let worker = Rc::new(Worker {
        policy: Policy::new("api"),
        redis: redis.connect().await.expect("a Redis"),
        swaps: CasStoreBuilder::new(connection.clone())
            .prefix(PREFIX)
            .build(),
        redis_of_blocks: redis_of_blocks.connect().await.expect("a Redis"),
        swaps_of_blocks: CasStoreBuilder::new(connection.clone())
            .prefix(PREFIX)
            .build(),
        counters: CounterStoreBuilder::new(connection.clone())
            .prefix(PREFIX)
            .build(),
        connection,
        charges: RefCell::default(),
        nodes: RefCell::default(),
        counting_nodes: RefCell::default(),
    });
    let tasks = LocalSet::new();
    let commands = tasks.run_until(async {
        let mut lines = BufReader::new(stdin()).lines();
        while let Some(line) = lines.next_line().await.expect("a line") {
            let (worker, command) = (Rc::clone(&worker), Command::read(&line));
            tokio::task::spawn_local(async move {
                let answer = worker.execute(&command).await;
                let answer = answer.unwrap_or_else(|error| format!("error {error}"));
                // A failed test no longer reads the output.
                let _ = writeln!(stdout(), "{} {answer}", command.id);
            });
        }
    });
    commands.await;
}

impl Command {
    fn read(line: &str) -> Self {
        let words: Vec<_> = line.splitn(7, ' ').collect();
        let number = |n: usize| words[n].parse().expect("a number");
        Self {
            id: number(0),
            name: words[1].to_owned(),
            store: words[2].to_owned(),
            key: words[3].into(),
            numbers: [number(4), number(5)],
            rule: words[6].to_owned(),
        }
    }
}

impl Worker {
    async fn execute(&self, command: &Command) -> Result<String, String> {
        match (command.name.as_str(), command.store.as_str()) {
            ("unreadable", _) => Ok(self.unreadable().to_string()),
            ("reset", store) => {
                let key = &command.key;
                let done = match store {
                    "redis" => self.redis.reset(&self.policy, key).await,
                    "swaps" => self.swaps.reset(&self.policy, key).await,
                    _ => self.counters.reset(&self.policy, key).await,
                };
                done.map_err(text)?;
                Ok("done".to_owned())
            }
            (_, "redis") => self.run(&self.redis, command).await,
            (_, "swaps") => self.run(&self.swaps, command).await,
            (_, "counters") => self.run(&self.counters, command).await,
            (_, node) if node.starts_with("counters") => {
                let node = self.counting_node(node);
                self.run_node(&node, command).await
            }
            ("block", node) => self.block(&self.node(node), command).await,
            (_, node) => {
                let node = self.node(node);
                self.run_node(&node, command).await
            }
        }
    }

    fn node(&self, name: &str) -> Rc<Node<AnyRule>> {
        let mut nodes = self.nodes.borrow_mut();
        let node = nodes.entry(name.to_owned()).or_insert_with(|| {
            let (store, wrapper, number) = parts(name);
            let is_redis = store == "redis";
            Rc::new(match (wrapper, is_redis) {
                ("blocks", true) => wrapped::blocks(self.redis_of_blocks.clone().boxed()),
                ("blocks", false) => wrapped::blocks(self.swaps_of_blocks.clone().boxed()),
                (_, true) => wrapped::any(wrapper, number, self.redis.clone().boxed()),
                (_, false) => wrapped::any(wrapper, number, self.swaps.clone().boxed()),
            })
        });
        Rc::clone(node)
    }

    fn counting_node(&self, name: &str) -> Rc<Node<OfCounters>> {
        let mut nodes = self.counting_nodes.borrow_mut();
        let node = nodes.entry(name.to_owned()).or_insert_with(|| {
            let (_, wrapper, number) = parts(name);
            Rc::new(wrapped::counted(
                wrapper,
                number,
                self.counters.clone().boxed(),
            ))
        });
        Rc::clone(node)
    }

    async fn block(&self, node: &Node<AnyRule>, command: &Command) -> Result<String, String> {
        let blocks = node.blocks.as_ref().ok_or("a node without blocks")?;
        let (policy, key) = (&self.policy, command.key);
        match command.numbers[0] {
            0 => blocks.unblock::<AnyRule>(policy, key).await.map_err(text)?,
            millis => {
                let blocked = blocks.block::<AnyRule>(policy, key, Duration::from_millis(millis));
                blocked.map_err(text)?.await.map_err(text)?;
            }
        }
        Ok("done".to_owned())
    }

    async fn run_node<Rule>(&self, node: &Node<Rule>, command: &Command) -> Result<String, String>
    where
        Rule: FromStr<Err: Display>,
    {
        let store = &node.store;
        match command.name.as_str() {
            "fits" => {
                let rule = command.rule.parse::<Rule>().map_err(text)?;
                Ok(store.fits(&rule).is_ok().to_string())
            }
            "report" => {
                let Report {
                    nodes,
                    unsynced,
                    failed,
                } = (node.report)();
                Ok(format!("{nodes} {unsynced} {failed}"))
            }
            "calls" => {
                let rule = command.rule.parse::<Rule>().map_err(text)?;
                let (mut admitted, mut refused) = (0, 0);
                for _ in 0..command.numbers[0] {
                    let ask = || Ask::new(&self.policy, &rule, command.key, Cost::ONE);
                    match acquire(store, ask).await?.is_admitted() {
                        true => admitted += 1,
                        false => refused += 1,
                    }
                    if refused == 2 {
                        break;
                    }
                }
                Ok(admitted.to_string())
            }
            other => Err(format!("no command `{other}` of nodes")),
        }
    }

    fn unreadable(&self) -> u64 {
        let swaps = self.swaps.stats();
        self.redis.stats().healed + swaps.healed + swaps.newer + self.connection.healed()
    }

    async fn run<Rule, S>(&self, store: &S, command: &Command) -> Result<String, String>
    where
        Rule: FromStr<Err: Display>,
        S: Store<Rule, Error = StoreError>,
    {
        let rule = command.rule.parse::<Rule>().map_err(text)?;
        let (key, [first, second]) = (command.key, command.numbers);
        match command.name.as_str() {
            "acquire" => {
                let cost = Cost::new(first).ok_or("a cost of 0")?;
                let ask = || Ask::new(&self.policy, &rule, key, cost);
                let mut decision = acquire(store, ask).await?;
                let charge = decision.take_charge();
                self.charges
                    .borrow_mut()
                    .extend(charge.map(|charge| (command.id, charge)));
                Ok(line(&decision))
            }
            "settle" => {
                let charge = self.charges.borrow_mut().remove(&first);
                let charge = charge.ok_or("no such charge")?;
                let settlement = Settlement::new(&self.policy, &rule, key, charge, second);
                let settled = store.settle(vec![settlement.map_err(text)?]).await;
                settled.map_err(text)?;
                Ok("done".to_owned())
            }
            "flood" => {
                let cost = Cost::new(first).ok_or("a cost of 0")?;
                let end = Instant::now() + Duration::from_millis(second);
                let decisions = RefCell::new(Vec::new());
                let caller = async || {
                    while Instant::now() < end {
                        let ask = || Ask::new(&self.policy, &rule, key, cost);
                        let decision = acquire(store, ask).await?;
                        decisions.borrow_mut().push(line(&decision));
                        if !decision.is_admitted() {
                            sleep(PAUSE).await;
                        }
                    }
                    Ok::<_, String>(())
                };
                tokio::try_join!(caller(), caller())?;
                Ok(decisions.take().join(";"))
            }
            other => Err(format!("no command `{other}`")),
        }
    }
}

/// Splits the name of a node: the store, the wrapper, its number.
fn parts(name: &str) -> (&str, &str, u64) {
    let parts: Vec<_> = name.split('/').collect();
    (parts[0], parts[1], parts[2].parse().expect("a number"))
}

/// Repeats a call until the store decides. A call that lost every race was not charged.
async fn acquire<'a, Rule: 'a, S>(
    store: &S,
    ask: impl Fn() -> Ask<'a, Rule>,
) -> Result<Decision, String>
where
    S: Store<Rule, Error = StoreError>,
{
    for _ in 0..1_000 {
        match store.acquire(&[ask()]).await {
            Ok(decisions) => return Ok(decisions.as_slice()[0]),
            Err(error) if error.is_contended() => {}
            Err(error) => return Err(text(error)),
        }
    }
    Err("lost every race".to_owned())
}

fn line(decision: &Decision) -> String {
    let (verdict, wait) = match decision.verdict() {
        Verdict::Allow => ("allow", Some(Duration::ZERO)),
        Verdict::Delay(wait) => ("delay", Some(wait)),
        Verdict::Refuse => ("refuse", decision.retry_after()),
        other => return format!("error {other:?}"),
    };
    let wait = wait.map_or(u128::MAX, |wait| wait.as_nanos());
    let wait = u64::try_from(wait).unwrap_or(u64::MAX);
    let remaining = decision.remaining().unwrap_or_default();
    let (at, class) = (decision.at().as_nanos(), decision.class());
    format!("{verdict} {wait} {at} {remaining} {class}")
}

fn text(error: impl Display) -> String {
    error.to_string().replace('\n', " ")
}
