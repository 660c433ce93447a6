//! Settlements and calls in one request: decisions and stored states equal those in memory.

use std::time::Duration;

use tollgate::{
    AnyRule, Charge, Cost, Decision, Policy, Timestamp,
    algorithm::{Algorithm, Scripted, Step},
    key::Key,
    store::{
        Redis,
        driver::{Ask, Settlement},
    },
};

use super::{
    Random, TENTHS, algorithms, any_grant,
    logs::{state_keys, with_entries},
    memory::{granted, in_micros},
    rules::{GRANTED, RULES, UNEVEN, UNEVEN_SECONDS},
    servers::{self, Reply, Resp},
    states::parts,
};

type AnyState = <AnyRule as Algorithm>::State;

const KEYS: usize = 3;

/// One client in memory and in the server.
struct Client {
    key: Key,
    /// The rules as a script applies them to this key.
    rules: Vec<AnyRule>,
    /// The states by rule. Rules of one kind use the state of the first of them.
    states: Vec<Option<AnyState>>,
    /// The unsettled decisions, with the rule that charged.
    open: Vec<(usize, Decision)>,
    label: String,
    name: Vec<u8>,
    reader: Resp,
}

impl Client {
    fn new(server: &servers::Redis, number: u64, policy: &Policy, rules: &[AnyRule]) -> Self {
        let label = format!("client-{number}-");
        let key = Key::from(&*label).labelled();
        let own = rules.iter().map(|rule| {
            let ask = Ask::new(policy, rule, key, Cost::ONE);
            let rule = ask.rule_for_key().unwrap_or_else(|| rule.clone());
            rule.in_script().unwrap_or(rule)
        });
        Self {
            key,
            rules: own.collect(),
            states: vec![None; rules.len()],
            open: Vec::new(),
            label,
            name: Vec::new(),
            reader: server.connect().unwrap(),
        }
    }

    /// Returns the state in the server.
    fn written(&mut self, server: &servers::Redis) -> Vec<Option<Vec<i64>>> {
        if self.name.is_empty() {
            let mut names = state_keys(server).into_iter();
            let own = names.find(|name| String::from_utf8_lossy(name).contains(&self.label));
            self.name = own.unwrap_or_default();
        }
        match self.reader.call(&[&b"GET"[..], &self.name]).unwrap() {
            Reply::Bytes(bytes) => with_entries(server, &self.name, parts(&bytes)),
            _ => Vec::new(),
        }
    }

    fn state(&mut self, rule: usize) -> (&AnyRule, &mut Option<AnyState>) {
        let kind = |rule: &AnyRule| algorithms(rule);
        let own = kind(&self.rules[rule]);
        let first = self.rules.iter().position(|rule| kind(rule) == own);
        (&self.rules[rule], &mut self.states[first.unwrap()])
    }

    fn parts(&self, rule: usize, state: &Option<AnyState>) -> Vec<Option<Vec<i64>>> {
        let mut parts = Vec::new();
        if let Some(state) = state {
            self.rules[rule].state_parts(state, &mut parts);
        }
        parts
    }

    /// Rounds the state to whole numbers, as the server stores it.
    fn round(&mut self, rule: usize) {
        let state = self.state(rule).1.clone();
        let parts = self.parts(rule, &state);
        let (rule, state) = self.state(rule);
        *state = rule.state_of_parts(&parts);
    }

    fn settle(&mut self, rule: usize, charge: &Charge, now: Timestamp, actual: u64) {
        let (own, state) = self.state(rule);
        let before = state.clone();
        own.settle(state, charge, now, actual);
        let after = state.clone();
        if self.parts(rule, &before) == self.parts(rule, &after) {
            *self.state(rule).1 = before;
        } else {
            self.round(rule);
        }
    }

    fn decide(&mut self, rule: usize, now: Timestamp, cost: Cost, up_to: u64) -> Decision {
        let (own, state) = self.state(rule);
        let cost = granted(own, state.as_ref(), now, cost, up_to);
        let step = own.step(state, now, cost);
        if !matches!(step, Step::Kept(_)) {
            self.round(rule);
        }
        step.decision()
    }
}

/// Returns the charge of a decision, which departs so many microseconds later.
fn charge_of(mut charged: Decision, later: Option<u64>) -> Charge {
    let charge = charged.take_charge().unwrap();
    match later {
        Some(micros) => charge.with_delay(Some(Duration::from_micros(micros))),
        None => charge,
    }
}

/// The results of timelines.
#[derive(Default, Debug)]
struct Tally {
    refunded: u64,
    forced: u64,
    admitted: u64,
    granted: u64,
    refused: u64,
}

/// Makes random requests, each with some settlements and some calls, on three keys. For a single
/// rule, compares the states number by number.
async fn run(
    server: &servers::Redis,
    store: &Redis<AnyRule>,
    rules: &[&str],
    first: u64,
    unit: u64,
    requests: u64,
    grants: bool,
) -> Tally {
    let rules: Vec<AnyRule> = rules.iter().map(|rule| rule.parse().unwrap()).collect();
    let (policy, mut random) = (Policy::new("limit"), Random::new(first));
    let mut clients: Vec<_> = (0..KEYS as u64)
        .map(|n| Client::new(server, first + n, &policy, &rules))
        .collect();
    let (mut now, mut tally) = (1_767_235_685_123_456_u64, Tally::default());
    for request in 0..requests {
        match random.below(12) {
            0 => now -= random.below(5 * unit),
            1 => now += random.below(40 * unit),
            2..8 => now += random.below(3 * unit),
            _ => {}
        }
        let at = Timestamp::from_nanos(now * 1000);
        let mut settled = Vec::new();
        for _ in 0..random.below(4) {
            let client = random.below(KEYS as u64) as usize;
            let open = &mut clients[client].open;
            if open.is_empty() {
                continue;
            }
            // Often the last one, otherwise any.
            let place = match random.below(2) {
                0 => open.len() - 1,
                _ => random.below(open.len() as u64) as usize,
            };
            let (rule, charged) = open.swap_remove(place);
            let cost = { charged }.take_charge().unwrap().cost;
            let actual = match random.below(64) {
                0..32 => 0,
                32..54 => random.below(cost + 1),
                54..63 => cost + random.below(3),
                // From 2^52 ticks on, a script's cost may be a tick off.
                _ => cost + random.below(30),
            };
            // Calls in flight are renewed, too.
            let is_renewed = algorithms(&rules[rule]) == ["in-flight"] && random.below(2) == 0;
            let later = is_renewed.then(|| random.below(20 * unit));
            let actual = if is_renewed { cost } else { actual };
            settled.push((client, rule, charged, actual, later));
        }
        let asked: Vec<_> = (0..random.below(4))
            .map(|_| {
                let rule = random.below(rules.len() as u64) as usize;
                let client = random.below(KEYS as u64) as usize;
                let most = if grants { 30 } else { 3 };
                let cost = Cost::new(1 + random.below(most)).unwrap();
                // Beside plain calls.
                let up_to = match grants {
                    true if random.below(3) > 0 => any_grant(&mut random),
                    _ => 0,
                };
                (client, rule, cost, up_to)
            })
            .collect();
        let settlements = settled
            .iter()
            .map(|(client, rule, charged, actual, later)| {
                let charge = charge_of(*charged, *later);
                let key = clients[*client].key;
                Settlement::new(&policy, &rules[*rule], key, charge, *actual).unwrap()
            });
        let asks: Vec<_> = asked
            .iter()
            .map(|(client, rule, cost, up_to)| {
                Ask::new(&policy, &rules[*rule], clients[*client].key, *cost).up_to(*up_to)
            })
            .collect();
        let context = format!(
            "{rules:?} from {first}, request {request} at {now} µs: {settled:?}, then {asked:?}, on {:?}",
            clients
                .iter()
                .map(|client| &client.states)
                .collect::<Vec<_>>()
        );
        let found = store
            .settle_and_acquire_each_at(at, settlements.collect(), &asks)
            .await
            .unwrap_or_else(|error| panic!("{context}: {error}"));
        for (client, rule, charged, actual, later) in settled {
            let charge = charge_of(charged, later);
            tally.refunded += u64::from(actual < charge.cost);
            tally.forced += u64::from(actual > charge.cost);
            clients[client].settle(rule, &charge, at, actual);
        }
        for ((client, rule, cost, up_to), found) in asked.into_iter().zip(found) {
            let client = &mut clients[client];
            let found = found.as_slice()[0];
            let expected = client.decide(rule, at, cost, up_to);
            assert_eq!(in_micros(&found), in_micros(&expected), "{context}");
            if found.is_admitted() {
                tally.admitted += 1;
                let charged = { found }.take_charge().unwrap().cost;
                tally.granted += u64::from(charged > cost.get());
                client.open.push((rule, found));
            } else {
                tally.refused += 1;
            }
        }
        if rules.len() > 1 {
            continue;
        }
        for client in &mut clients {
            let written = match client.written(server) {
                // The state is empty.
                written if written == [None] => Vec::new(),
                written => written,
            };
            assert_eq!(written, client.parts(0, &client.states[0]), "{context}");
        }
    }
    tally
}

/// Returns each set of rules with its pace.
fn sets() -> Vec<(u64, Vec<&'static str>)> {
    let paces = [
        (TENTHS, &RULES[..]),
        (1, &UNEVEN),
        (TENTHS, &UNEVEN_SECONDS),
    ];
    let mut sets = Vec::new();
    for (unit, rules) in paces {
        for (_, rules) in rules {
            sets.extend(rules.iter().map(|rule| (unit, vec![*rule])));
        }
    }
    // Memory rounds states that carry over between uneven rules differently.
    let several = RULES.iter().filter(|(_, rules)| rules.len() > 1);
    sets.extend(several.map(|(_, rules)| (TENTHS, rules.to_vec())));
    sets
}

#[tokio::test]
async fn settlements_and_calls_of_one_request_equal_those_of_memory() {
    let server = servers::Redis::start();
    let store: Redis<AnyRule> = Redis::connect(server.url()).await.unwrap();
    let mut all = Tally::default();
    for (number, (unit, rules)) in sets().into_iter().enumerate() {
        let first = 10 * number as u64;
        let tally = run(&server, &store, &rules, first, unit, 120, false).await;
        server.command(&["FLUSHALL"]);
        assert!(tally.refunded > 10, "{rules:?}: {tally:?}");
        all.refunded += tally.refunded;
        all.forced += tally.forced;
        all.admitted += tally.admitted;
        all.refused += tally.refused;
    }
    assert!(all.forced > 500 && all.refused > 1000, "{all:?}");
    assert_eq!(store.stats().healed, 0);
}

#[tokio::test]
async fn grants_calls_and_settlements_of_one_request_equal_those_of_memory() {
    let server = servers::Redis::start();
    let store: Redis<AnyRule> = Redis::connect(server.url()).await.unwrap();
    let sets = GRANTED.iter().flat_map(|(_, rules)| {
        let each = rules.iter().map(|rule| vec![*rule]);
        each.chain([rules.to_vec()])
    });
    let mut refused = 0;
    for (number, rules) in sets.enumerate() {
        let first = 10 * number as u64;
        let tally = run(&server, &store, &rules, first, TENTHS, 250, true).await;
        server.command(&["FLUSHALL"]);
        assert!(tally.granted > 10, "{rules:?}: {tally:?}");
        refused += tally.refused;
        assert!(tally.refunded > 10, "{rules:?}: {tally:?}");
    }
    assert!(refused > 500, "{refused}");
    assert_eq!(store.stats().healed, 0);
}
