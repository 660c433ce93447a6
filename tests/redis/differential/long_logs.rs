//! Logs so long that slots are dropped, moved and packed: decisions and states equal those in
//! memory.

use std::time::Duration;

use support::{Random, cases, servers};
use tollgate::{
    AnyRule, Charge, Cost, Timestamp,
    algorithm::{Algorithm, Scripted},
    key::Key,
    store::{
        Redis, Store,
        driver::{Ask, Settlement},
    },
};

use super::{
    super::{only, policy},
    logs::{state_keys, with_entries},
    memory::{Memory, in_micros},
    servers::Reply,
    states::parts,
};

/// One client's log in memory and in the server.
struct Client {
    store: Redis<AnyRule>,
    rule: AnyRule,
    key: Key,
    state: Option<<AnyRule as Algorithm>::State>,
    open: Vec<[Charge; 2]>,
    /// In microseconds.
    now: u64,
    random: Random,
    admitted: u64,
    refused: u64,
}

impl Client {
    fn new(store: &Redis<AnyRule>, rule: &str, seed: u64) -> Self {
        Self {
            store: store.clone(),
            rule: rule.parse().unwrap(),
            key: Key::from(seed),
            state: None,
            open: Vec::new(),
            now: 1_767_235_685_123_456,
            random: Random::new(seed),
            admitted: 0,
            refused: 0,
        }
    }

    /// Makes calls of these costs, after settlements of some open charges to these units.
    async fn request(&mut self, settled: &[u64], costs: &[u64]) {
        let at = Timestamp::from_nanos(self.now * 1000);
        let mut settlements = Vec::new();
        for actual in settled {
            if self.open.is_empty() {
                break;
            }
            let place = self.random.below(self.open.len() as u64) as usize;
            let [ours, theirs] = self.open.swap_remove(place);
            self.rule.settle(&mut self.state, &ours, at, *actual);
            let settlement = Settlement::new(policy(), &self.rule, self.key, theirs, *actual);
            settlements.push(settlement.unwrap());
        }
        let ask = |cost: &u64| Ask::new(policy(), &self.rule, self.key, Cost::new(*cost).unwrap());
        let asks: Vec<_> = costs.iter().map(ask).collect();
        let found = self
            .store
            .settle_and_acquire_each_at(at, settlements, &asks)
            .await
            .unwrap();
        for (ask, found) in asks.iter().zip(found) {
            let (found, before) = (only(found), self.state.clone());
            let expected = self.rule.step(&mut self.state, at, ask.cost()).decision();
            assert_eq!(
                in_micros(&found),
                in_micros(&expected),
                "{ask:?} at {} µs of {before:?}",
                self.now
            );
            let charges = [expected, found].map(|mut decision| decision.take_charge());
            match charges {
                [Some(ours), Some(theirs)] => {
                    self.open.push([ours, theirs]);
                    self.admitted += 1;
                }
                _ => self.refused += 1,
            }
        }
    }

    /// Compares the state in the server, whose only client this is, number by number.
    fn compare(&self, server: &servers::Redis) {
        let mut expected = Vec::new();
        if let Some(state) = &self.state {
            self.rule.state_parts(state, &mut expected);
        }
        let name = state_keys(server).pop().unwrap();
        let Reply::Bytes(bytes) = server.reply(&[&b"GET"[..], &name[..]]) else {
            panic!("no state")
        };
        assert_eq!(with_entries(server, &name, parts(&bytes)), expected);
    }

    /// Returns the slots of the longest log in the server.
    fn slots(server: &servers::Redis) -> u64 {
        let states = state_keys(server);
        let mut logs = server.keys();
        logs.retain(|name| !states.contains(name));
        let slots = |name: &Vec<u8>| {
            let length = server.command(&[&b"STRLEN"[..], name]);
            length.parse::<u64>().unwrap() / 16
        };
        logs.iter().map(slots).max().unwrap_or(0)
    }
}

#[tokio::test]
async fn long_logs_equal_those_of_memory() {
    let server = servers::Redis::start();
    let store: Redis<AnyRule> = Redis::connect(server.url()).await.unwrap();
    for (seed, text) in [
        "sliding-log 400/1s",
        "sliding-log 100/100ms & sliding-log 700/1s",
    ]
    .into_iter()
    .enumerate()
    {
        let mut client = Client::new(&store, text, seed as u64);
        let mut longest = 0;
        for request in 0..cases(6_000).max(1_500) {
            // Phases of floods, of calls that are refunded, of a trickle; and pauses, after which
            // nothing or little counts.
            client.now += match (request / 300 % 4, client.random.below(400)) {
                (_, 0) => client.random.below(1_500_000),
                (3, _) => client.random.below(9_000),
                _ => client.random.below(2_000),
            };
            if client.random.below(200) == 0 {
                client.now -= client.random.below(3_000);
            }
            let random = &mut client.random;
            let settled = match request / 300 % 4 {
                1 => random.below(5),
                _ => random.below(6) / 5,
            };
            let settled: Vec<_> = (0..settled)
                .map(|_| *random.choose(&[0, 0, 0, 1, 5]))
                .collect();
            let costs = 1 + random.below(8) / 6;
            let costs: Vec<_> = (0..costs)
                .map(|_| *random.choose(&[1, 1, 1, 1, 1, 2, 30, 390, 1_000]))
                .collect();
            client.request(&settled, &costs).await;
            longest = longest.max(if request % 16 == 0 {
                Client::slots(&server)
            } else {
                0
            });
            if request % 50 == 0 && client.state.is_some() {
                client.compare(&server);
            }
        }
        let Client {
            admitted, refused, ..
        } = client;
        assert!(
            admitted > 500 && refused > 200,
            "{text}: {admitted}, {refused}"
        );
        // As many that are over as those that count, and some.
        assert!((200..1_700).contains(&longest), "{text}: {longest} slots");
        server.command(&["FLUSHALL"]);
    }
    assert_eq!(store.stats().healed, 0);
}

/// Calls that are given back leave slots without units. A log of such slots alone is packed.
#[tokio::test]
async fn refunds_do_not_make_a_log_longer() {
    let server = servers::Redis::start();
    let store: Redis<AnyRule> = Redis::connect(server.url()).await.unwrap();
    let mut client = Client::new(&store, "sliding-log 50/1h", 1);
    let mut longest = 0;
    for _ in 0..40 {
        for _ in 0..9 {
            client.now += 1_000;
            client.request(&[], &[1]).await;
        }
        // One that stays, behind those that go in random order.
        let going = std::mem::take(&mut client.open);
        client.now += 1_000;
        client.request(&[], &[1]).await;
        client.open = going;
        longest = longest.max(Client::slots(&server));
        for _ in 0..3 {
            client.now += 1_000;
            client.request(&[0; 3], &[]).await;
        }
        client.compare(&server);
    }
    assert!(
        (100..=2 * (2 * 50 + 64)).contains(&longest),
        "{longest} slots"
    );
    assert!(client.refused == 0 && client.admitted == 400);
}

/// A string that is evicted without its state, or a value of another type in its place: the key is
/// as new, once.
#[tokio::test]
async fn a_lost_log_is_healed() {
    let server = servers::Redis::start();
    let store: Redis<AnyRule> = Redis::connect(server.url()).await.unwrap();
    let rule: AnyRule = "sliding-log 100/1d".parse().unwrap();
    let key = Key::from(7);
    let ask = |cost| [Ask::new(policy(), &rule, key, Cost::new(cost).unwrap())];
    let remaining = async || only(store.look(&ask(1)).await.unwrap()).remaining();
    for (lost, command) in [
        ("deleted", &["DEL", "$"][..]),
        ("cut", &["SET", "$", "0123456789"]),
        ("of another type", &["SADD", "$", "1"]),
        (
            "another log",
            &["SETRANGE", "$", "320", "01234567890123456789012345678901"],
        ),
    ] {
        for calls in 1..=21 {
            assert!(store.acquire(&ask(1)).await.unwrap().is_admitted());
            assert_eq!(remaining().await, Some(100 - calls), "{lost}");
        }
        let names = server.keys();
        let log = names
            .iter()
            .find(|name| !state_keys(&server).contains(name))
            .unwrap();
        if lost == "of another type" {
            server.command(&[&b"DEL"[..], log]);
        }
        let command = command.iter().map(|word| match *word {
            "$" => &log[..],
            word => word.as_bytes(),
        });
        server.reply(&command.collect::<Vec<_>>());
        let healed = store.stats().healed;
        assert_eq!(remaining().await, Some(100), "{lost}");
        assert!(
            store.acquire(&ask(30)).await.unwrap().is_admitted(),
            "{lost}"
        );
        assert_eq!(store.stats().healed, healed + 1, "{lost}");
        assert_eq!(remaining().await, Some(70), "{lost}");
        assert!(
            !store.acquire(&ask(71)).await.unwrap().is_admitted(),
            "{lost}"
        );
        store.reset(policy(), &key).await.unwrap();
        assert!(server.keys().is_empty(), "{lost}");
    }
}

/// Sums stay exact, however large the units are.
#[tokio::test]
async fn units_near_the_greatest_number_are_counted() {
    let server = servers::Redis::start();
    let store: Redis<AnyRule> = Redis::connect(server.url()).await.unwrap();
    for (bits, calls) in [(40, 200), (39, 150)] {
        let limit = 1_u64 << bits;
        let mut client = Client::new(&store, &format!("sliding-log {limit}/1s"), bits);
        for call in 0..calls {
            client.now += 500_000;
            client.request(&[], &[limit]).await;
            assert_eq!(client.admitted, call / 2 + 1);
        }
    }
    assert_eq!(store.stats().healed, 0);
}

/// One call about one log under two rules, of which another one is refused: each is told what it
/// would be alone.
#[tokio::test]
async fn asks_under_several_rules_are_told_what_they_are_in_memory() {
    let server = servers::Redis::start();
    let store: Redis<AnyRule> = Redis::connect(server.url()).await.unwrap();
    let rules = ["8/300ms", "5/1s", "6/600ms"].map(|rule| format!("sliding-log {rule}"));
    let rules = rules.map(|rule| rule.parse::<AnyRule>().unwrap());
    let never: AnyRule = "fixed-window 1/365d".parse().unwrap();
    let mut random = Random::new(3);
    for client in 0..30_u64 {
        let key = Key::from(client);
        let (mut memory, mut now) = (Memory(vec![None; 2]), 1_767_235_685_123_456);
        for _ in 0..20 {
            now += random.below(400_000);
            let mut asks: Vec<_> = (0..1 + random.below(3))
                .map(|_| {
                    let cost = Cost::new(1 + random.below(3)).unwrap();
                    Ask::new(policy(), random.choose(&rules), key, cost)
                })
                .collect();
            if random.below(3) == 0 {
                let two = Cost::new(2).unwrap();
                asks.insert(
                    random.below(asks.len() as u64 + 1) as usize,
                    Ask::new(policy(), &never, key, two),
                );
            }
            let at = Timestamp::from_nanos(now * 1000);
            let found = store.acquire_at(at, &asks).await.unwrap();
            let question = |ask: &Ask<'_, AnyRule>| {
                let state = usize::from(ask.rule() == &never);
                (state, ask.rule().clone(), ask.cost(), 0)
            };
            let questions: Vec<_> = asks.iter().map(question).collect();
            let expected = memory.decide(&questions, at);
            let expected: Vec<_> = expected.iter().map(in_micros).collect();
            let found: Vec<_> = found.as_slice().iter().map(in_micros).collect();
            assert_eq!(found, expected, "{asks:?} at {now} µs");
        }
    }
}

/// A state that lives longer than its log is not damaged.
#[tokio::test]
async fn a_log_that_is_over_is_not_healed() {
    let server = servers::Redis::start();
    let store: Redis<AnyRule> = Redis::connect(server.url()).await.unwrap();
    for (client, texts) in [
        &["sliding-log 5/200ms & fixed-window 100/365d"][..],
        &["sliding-log 5/200ms", "fixed-window 100/365d"],
    ]
    .into_iter()
    .enumerate()
    {
        let rules = texts.iter().map(|text| text.parse::<AnyRule>().unwrap());
        let rules: Vec<_> = rules.collect();
        let key = Key::from(client as u64);
        let ask = |rule| [Ask::new(policy(), rule, key, Cost::ONE)];
        for _ in 0..2 {
            for rule in &rules {
                assert!(store.acquire(&ask(rule)).await.unwrap().is_admitted());
            }
            tokio::time::sleep(Duration::from_millis(1_500)).await;
            store.look(&ask(&rules[0])).await.unwrap();
        }
    }
    assert_eq!(store.stats().healed, 0);
}
