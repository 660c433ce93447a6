//! Deltas of nodes that decide by themselves, beside calls that the server decides.

use std::time::Duration;

use support::{Random, servers::Reply};
use tollgate::{
    AnyRule, Cost, Timestamp, TokenBucket,
    key::Key,
    store::{
        Redis, Store, StoreExt, SyncConfig,
        driver::{Ask, Batch, Delta, FleetStore, Pulled, Settlement},
    },
    time::{Clock, SystemClock},
};

use super::{callers::url_of, only, policy, servers};

const KEYS: u64 = 4;
const NODES: u64 = 3;
/// Far more than all nodes send, and nothing is restored while a test runs. The programs for
/// buckets decide the calls of the first one.
const RULES: [&str; 3] = [
    "token-bucket 1/1h burst=10000",
    "sliding-window 3000/7d",
    "token-bucket 1/1h burst=10000 & fixed-window 9000/365d",
];

type Server = Redis<AnyRule>;

fn ask(rule: &AnyRule, client: u64, cost: u64) -> Ask<'_, AnyRule> {
    Ask::new(policy(), rule, Key::from(client), Cost::new(cost).unwrap())
}

/// A numbered delta: the client, the number and the units.
type Sent = (u64, u64, u64);

fn delta(
    rule: &AnyRule,
    node: u64,
    (client, number, units): Sent,
    age: Duration,
) -> Delta<'_, AnyRule> {
    let batch = Batch { node, number };
    Delta::new(policy(), rule, Key::from(client), batch, (age, units))
}

async fn sync(
    store: &Server,
    deltas: &[Delta<'_, AnyRule>],
) -> Vec<Pulled<<AnyRule as tollgate::algorithm::Algorithm>::State>> {
    let synced = store.sync(deltas).unwrap().await.unwrap();
    synced.into_iter().map(Result::unwrap).collect()
}

async fn spent(store: &Server, rule: &AnyRule, client: u64) -> u64 {
    let looked = only(store.look(&[ask(rule, client, 1)]).await.unwrap());
    looked.limit().unwrap() - looked.remaining().unwrap()
}

/// Sends deltas, each beside an older one, some of them twice because the answer is not awaited;
/// and spends by each of the programs. Returns how many units each client spent.
async fn node(store: Server, rule: AnyRule, node: u64) -> Vec<u64> {
    let mut random = Random::new(node);
    let mut sums = vec![0; KEYS as usize];
    let mut sent: Vec<Sent> = Vec::new();
    for number in 1..=80 {
        let (client, units) = (random.below(KEYS), 1 + random.below(20));
        let sum = &mut sums[client as usize];
        *sum += units;
        sent.push((client, number, units));
        let old = sent[random.below(sent.len() as u64) as usize];
        let deltas =
            [(client, number, units), old].map(|sent| delta(&rule, node, sent, Duration::ZERO));
        if random.once_in(3) {
            let hasty = tokio::time::timeout(Duration::ZERO, store.sync(&deltas).unwrap());
            let _ = hasty.await;
        }
        sync(&store, &deltas).await;
        let up_to = if random.once_in(2) { 5 } else { 1 };
        let mut spent = only(
            store
                .acquire(&[ask(&rule, client, 1).up_to(up_to)])
                .await
                .unwrap(),
        );
        let charge = spent.take_charge().unwrap();
        *sum += charge.cost;
        if random.once_in(4) {
            *sum += 2;
            let actual = charge.cost + 2;
            let more = Settlement::new(policy(), &rule, Key::from(client), charge, actual);
            store.settle(vec![more.unwrap()]).await.unwrap();
        }
    }
    sums
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_unit_is_added_once_however_often_it_is_sent() {
    let servers = [
        Some(servers::Redis::start()),
        servers::Redis::start_valkey(),
    ];
    for server in servers.into_iter().flatten() {
        for (n, rule) in (0..).zip(RULES) {
            let rule: AnyRule = rule.parse().unwrap();
            let nodes: Vec<_> = (0..NODES)
                .map(|number| {
                    let (url, rule) = (server.url(), rule.clone());
                    tokio::spawn(async move {
                        node(Redis::connect(url).await.unwrap(), rule, n * NODES + number).await
                    })
                })
                .collect();
            let mut sums = vec![0; KEYS as usize];
            for node in nodes {
                let spent = node.await.unwrap();
                sums.iter_mut()
                    .zip(spent)
                    .for_each(|(sum, spent)| *sum += spent);
            }
            let store: Server = Redis::connect(server.url()).await.unwrap();
            for (client, sum) in (0..).zip(sums) {
                assert_eq!(spent(&store, &rule, client).await, sum, "{rule}");
                let key = Key::from(client);
                store.reset(policy(), &key).await.unwrap();
            }
            assert_eq!(store.stats().healed, 0);
        }
    }
}

/// The keys of a call lie in different slots of a cluster, and a program may touch those of one
/// slot only.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deltas_of_many_slots_go_to_a_cluster_by_one_call() {
    const CLIENTS: u64 = 60;
    let cluster = servers::Cluster::start();
    let url = url_of(&cluster);
    let store: Server = Redis::connect(url.clone()).await.unwrap();
    let rule: AnyRule = RULES[0].parse().unwrap();
    let sent = |client| delta(&rule, 1, (client, 1, client), Duration::ZERO);
    let deltas: Vec<_> = (0..CLIENTS).map(sent).collect();
    for _ in 0..2 {
        assert_eq!(sync(&store, &deltas).await.len(), CLIENTS as usize);
    }
    for client in 0..CLIENTS {
        assert_eq!(spent(&store, &rule, client).await, client);
    }
    // The same by a node that tells later, and keeps the parts of the cluster apart.
    let node = store
        .clone()
        .synced(SyncConfig::new().max_unsynced(50).nodes(2));
    for _ in 0..5 {
        for client in 0..CLIENTS {
            let decisions = node.acquire(&[ask(&rule, client, 2)]).await.unwrap();
            assert!(decisions.is_admitted());
        }
    }
    assert_eq!(node.flush(Duration::from_secs(10)).await, 0);
    assert_eq!((node.stats().failed, node.stats().offline), (0, 0));
    for client in 0..CLIENTS {
        assert_eq!(spent(&store, &rule, client).await, client + 10);
    }
}

/// A delta counts from its instant on: the bucket has refilled since, and a window that is over
/// takes nothing.
#[tokio::test]
async fn a_late_delta_counts_as_of_its_instant() {
    let server = servers::Redis::start();
    let store: Server = Redis::connect(server.url()).await.unwrap();
    for (client, rule, left) in [
        (1, "token-bucket 10/10s", 10),
        (2, "token-bucket 10/1h", 5),
        (3, "fixed-window 10/10s", 10),
        (4, "sliding-window 10/365d", 5),
    ] {
        let rule: AnyRule = rule.parse().unwrap();
        let late = delta(&rule, 1, (client, 1, 5), Duration::from_secs(60));
        let [Pulled { at, state }] = &sync(&store, &[late]).await[..] else {
            panic!("a delta is answered by a state");
        };
        let looked = tollgate::algorithm::Algorithm::look(&rule, state.as_ref(), *at);
        assert_eq!(looked.remaining(), Some(left), "{rule}");
        let looked = only(store.look(&[ask(&rule, client, 1)]).await.unwrap());
        assert_eq!(looked.remaining(), Some(left), "{rule}");
    }
}

#[tokio::test]
async fn nodes_that_come_and_go_fill_no_value() {
    let server = servers::Redis::start();
    let store: Server = Redis::connect(server.url()).await.unwrap();
    let rule: AnyRule = RULES[0].parse().unwrap();
    for node in 0..300 {
        let most = (1 << 53) - 1;
        sync(
            &store,
            &[delta(&rule, most - node, (0, most, 1), Duration::ZERO)],
        )
        .await;
    }
    assert_eq!(spent(&store, &rule, 0).await, 300);
    let names = server.keys();
    let [name] = &names[..] else {
        panic!("one key has one value: {names:?}");
    };
    let Reply::Number(length) = server.reply(&[&b"STRLEN"[..], name]) else {
        panic!("the length of a value is a number");
    };
    assert!(length < 2500, "{length} bytes");
    // The oldest of them are forgotten, and the youngest known.
    let most = (1 << 53) - 1;
    sync(
        &store,
        &[delta(&rule, most - 299, (0, most, 1), Duration::ZERO)],
    )
    .await;
    assert_eq!(spent(&store, &rule, 0).await, 300);
}

#[tokio::test]
async fn a_reset_forgets_the_numbers() {
    let server = servers::Redis::start();
    let store: Server = Redis::connect(server.url()).await.unwrap();
    let rule: AnyRule = RULES[0].parse().unwrap();
    let one = [delta(&rule, 1, (7, 1, 3), Duration::ZERO)];
    sync(&store, &one).await;
    store.reset(policy(), &Key::from(7_u64)).await.unwrap();
    sync(&store, &one).await;
    assert_eq!(spent(&store, &rule, 7).await, 3);
}

/// Deltas of keys with a token bucket alone take a way of their own through the program. Beside a
/// delta of another rule, all deltas of a key take the way of all rules. What is written and
/// answered is the same, whatever wrote the keys before.
#[tokio::test]
async fn both_ways_of_a_bucket_write_the_same() {
    // Levels of the second pair are in different units.
    const RULES: [[&str; 2]; 4] = [
        [
            "token-bucket 100/1s burst=1000",
            "token-bucket 100/1s burst=700",
        ],
        [
            "token-bucket 1/1h burst=10000",
            "token-bucket 1/1h burst=1000",
        ],
        ["token-bucket 7/1m burst=3", "token-bucket 7/1m burst=3"],
        [
            "token-bucket 10/10s burst=10 initial=2",
            "token-bucket 10/10s",
        ],
    ];
    const STEPS: u64 = 60;
    let window: AnyRule = "fixed-window 10/10s".parse().unwrap();
    let server = servers::Redis::start();
    let store: Server = Redis::connect(server.url()).await.unwrap();
    let mut random = Random::new(5);
    let mut written = 0;
    for round in 0..24 {
        let rules: [AnyRule; 2] = RULES[round % RULES.len()].map(|text| text.parse().unwrap());
        server.command(&["FLUSHALL"]);
        let keys = [1_u64, 2];
        for number in 2..STEPS {
            let rule = &rules[usize::from(random.once_in(4))];
            match random.below(8) {
                0 => {
                    let asks = keys.map(|client| ask(rule, client, 1 + number % 3));
                    store.acquire_each_at(now(), &asks).await.unwrap();
                    continue;
                }
                1 if round % 3 == 0 => {
                    let asks = keys.map(|client| ask(&window, client, 1));
                    store.acquire_each_at(now(), &asks).await.unwrap();
                    continue;
                }
                2 => tokio::time::sleep(Duration::from_millis(random.below(20))).await,
                _ => {}
            }
            // Up to three deltas, some of them known already, and some that only ask.
            let sent: Vec<_> = (0..=random.below(3))
                .map(|more| {
                    let units = random.below(6) * 10_u64.pow(random.below(4) as u32);
                    let number = 4 * number + more - 5 * u64::from(random.once_in(5)).min(number);
                    let age = Duration::from_millis(random.below(30) * random.below(30));
                    (1 + random.below(3), number, units, age)
                })
                .collect();
            let of_key = |client| {
                sent.iter().map(move |(node, number, units, age)| {
                    delta(rule, *node, (client, *number, *units), *age)
                })
            };
            // A number that the key has, so it adds nothing.
            let known = delta(&window, 1 << 52, (2, 1, 1), Duration::ZERO);
            let first = keys.map(|client| delta(rule, 1 << 52, (client, 1, 1), Duration::ZERO));
            let deltas: Vec<_> = first
                .into_iter()
                .chain(of_key(1))
                .chain(of_key(2))
                .chain([known])
                .collect();
            let pulled = sync(&store, &deltas).await;
            let seen = |pulled: &Pulled<_>| {
                let state = pulled.state.as_ref();
                let look = tollgate::algorithm::Algorithm::look(rule, state, pulled.at);
                (state.is_some(), look.remaining(), look.reset_after())
            };
            let states = &pulled[2..];
            for (one, other) in states.iter().zip(&states[sent.len()..]).take(sent.len()) {
                assert_eq!(seen(one), seen(other), "{rule}: {sent:?}");
            }
            let values = stored(&server);
            let [(one, left), (other, other_left)] = &values[..] else {
                panic!("two keys were written: {values:?}");
            };
            let ([one, ends], [other, other_ends]) = (split_ends(one), split_ends(other));
            assert_eq!(one, other, "{rule}: {sent:?}");
            // That of a key is a whole millisecond of the server's.
            for (end, other) in ends.iter().zip(&other_ends) {
                assert!(end.abs_diff(*other) <= 2000, "{rule}: {sent:?}");
            }
            assert!(left.abs_diff(*other_left) < 50, "{values:?}");
            written += 1;
        }
    }
    assert!(written > 800, "{written}");
    assert_eq!(store.stats().healed, 0);
}

/// A server that is full takes nothing in.
#[tokio::test]
async fn a_full_server_takes_in_no_delta() {
    let server = servers::Redis::start();
    let store: Server = Redis::connect(server.url()).await.unwrap();
    let rule: AnyRule = RULES[0].parse().unwrap();
    let delta = |number| [delta(&rule, 1, (1, number, 5), Duration::ZERO)];
    for number in 1..=2 {
        server.command(&["CONFIG", "SET", "maxmemory", "1"]);
        let error = store.sync(&delta(number)).unwrap().await.unwrap_err();
        assert!(error.to_string().contains("OOM"), "{error}");
        server.command(&["CONFIG", "SET", "maxmemory", "0"]);
        for _ in 0..2 {
            sync(&store, &delta(number)).await;
            assert_eq!(spent(&store, &rule, 1).await, 5 * number);
        }
    }
}

/// A value that the short way does not know: the way of all rules reads it, or heals it.
#[tokio::test]
async fn other_values_are_left_to_the_driver() {
    let server = servers::Redis::start();
    let store: Server = Redis::connect(server.url()).await.unwrap();
    let rule: AnyRule = RULES[0].parse().unwrap();
    sync(&store, &[delta(&rule, 1, (1, 1, 5), Duration::ZERO)]).await;
    let names = server.keys();
    let (name, value) = (&names[0], stored(&server).remove(0).0);
    let mut healed = 0;
    let mut random = Random::new(7);
    for number in 2..400 {
        let mut crafted = value.clone();
        let at = random.below(value.len() as u64) as usize;
        match random.below(3) {
            // Its kind in two bytes, as none of the programs writes it.
            _ if number == 2 => {
                let kind = value.windows(2).position(|bytes| bytes == [0x94, 1]);
                crafted.insert(kind.unwrap() + 1, 0xcc);
            }
            0 => crafted[at] = random.below(256) as u8,
            1 => crafted.truncate(at),
            _ => crafted.insert(at, random.below(256) as u8),
        }
        server.reply(&[&b"SET"[..], name, &crafted]);
        let (key, other) = (delta(&rule, 2, (1, number, 1), Duration::ZERO), &rule);
        let alone = sync(&store, &[key]).await;
        let one = store.stats().healed;
        let bytes = stored(&server).remove(0).0;
        server.reply(&[&b"SET"[..], name, &crafted]);
        let window: AnyRule = "fixed-window 10/10s".parse().unwrap();
        let key = delta(other, 2, (1, number, 1), Duration::ZERO);
        let known = delta(&window, 2, (1, number, 1), Duration::ZERO);
        let beside = sync(&store, &[key, known]).await;
        assert_eq!(store.stats().healed - one, one - healed, "{crafted:?}");
        healed = store.stats().healed;
        let length = stored(&server)[0].0.len();
        assert_eq!(bytes.len(), length, "{crafted:?}");
        assert_eq!(alone[0].state.is_some(), beside[0].state.is_some());
    }
    assert!(healed > 100, "{healed}");
}

/// Returns all values, each with the milliseconds until it expires.
fn stored(server: &servers::Redis) -> Vec<(Vec<u8>, i64)> {
    let stored = |name: &Vec<u8>| {
        let value = server.reply(&[&b"GET"[..], name]);
        let left = server.reply(&[&b"PTTL"[..], name]);
        match (value, left) {
            (Reply::Bytes(value), Reply::Number(left)) => (value, left),
            other => panic!("a key has no value, or never expires: {other:?}"),
        }
    };
    server.keys().iter().map(stored).collect()
}

/// Returns the words of a value without the instants at which its states end, and these.
fn split_ends(value: &[u8]) -> [Vec<u64>; 2] {
    let (mut words, mut ends, mut rest) = (Vec::new(), Vec::new(), value);
    while let [byte, after @ ..] = rest {
        words.push(u64::from(*byte));
        rest = after;
        // A list of two, of which a number of 64 bits is the first.
        if let (146, [207, end @ ..]) = (*byte, after)
            && let Some((end, after)) = end.split_first_chunk()
        {
            ends.push(u64::from_be_bytes(*end));
            rest = after;
        }
    }
    [words, ends]
}

/// The time of this process, in whole microseconds.
fn now() -> Timestamp {
    let now = SystemClock::default().now();
    Timestamp::from_nanos(now.as_nanos() / 1000 * 1000)
}

/// This does not depend on the other deltas of its call.
#[tokio::test]
async fn a_rule_that_does_not_fit_fails_its_own_delta() {
    let server = servers::Redis::start();
    let store: Redis<TokenBucket> = Redis::connect(server.url()).await.unwrap();
    let unfit: TokenBucket = "token-bucket 1/86400000000001ns burst=999".parse().unwrap();
    let fits: TokenBucket = "token-bucket 1/1d burst=100".parse().unwrap();
    let batch = Batch { node: 1, number: 1 };
    let delta = |client: u64, rule| {
        let told = (Duration::ZERO, client);
        Delta::new(policy(), rule, Key::from(client), batch, told)
    };
    let deltas = [delta(1, &fits), delta(2, &unfit), delta(3, &fits)];
    for _ in 0..2 {
        let synced = store.sync(&deltas).unwrap().await.unwrap();
        let [first, unfit, last] = &synced[..] else {
            panic!("each delta has a result: {synced:?}");
        };
        assert!(first.is_ok() && last.is_ok(), "{synced:?}");
        let error = unfit.as_ref().unwrap_err();
        assert!(error.is_unsupported(), "{error}");
    }
    for client in [1, 3] {
        let ask = [Ask::new(policy(), &fits, Key::from(client), Cost::ONE)];
        let looked = only(store.look(&ask).await.unwrap());
        assert_eq!(looked.remaining(), Some(100 - client));
    }
    assert!(store.sync(&[]).unwrap().await.unwrap().is_empty());
    // A node that may be ahead leaves the client to the store, and tells of the others.
    let node = store.synced(SyncConfig::new().max_unsynced(50).nodes(2));
    for client in 1..=3 {
        let rule = if client == 2 { &unfit } else { &fits };
        let ask = [Ask::new(policy(), rule, Key::from(client), Cost::ONE)];
        match node.acquire(&ask).await {
            Ok(decisions) => assert!(client != 2 && decisions.is_admitted()),
            Err(error) => assert!(client == 2 && error.is_unsupported(), "{error}"),
        }
    }
    assert_eq!(node.flush(Duration::from_secs(10)).await, 0);
    let stats = node.stats();
    assert_eq!((stats.pushed, stats.failed, stats.dropped), (2, 0, 0));
}
