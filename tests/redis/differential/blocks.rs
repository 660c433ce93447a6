//! Blocks beside calls of rules: decisions and states equal those of memory.

use std::time::Duration;

use tollgate::{
    AnyRule, Cost, Policy, Timestamp,
    algorithm::{Algorithm, Block, Blockable, Scripted},
    key::Key,
    store::{Redis, driver::Ask},
};

use super::{
    Random, TENTHS, cases,
    logs::{state_keys, with_entries},
    memory::in_micros,
    servers::{self, Reply},
    states::parts,
};

type Rule = Blockable<AnyRule>;
type State = <Rule as Algorithm>::State;

/// The rules of which some calls are.
const RULES: [&str; 5] = [
    "token-bucket 5/1s",
    "fixed-window 5/1s",
    "sliding-log 5/1s",
    "three-color 3/1s peak=5/1s",
    "token-bucket 9/1s & sliding-window 5/1s",
];

/// A block of up to some days, of a key that is blocked or of a new one.
fn any_block(random: &mut Random) -> Rule {
    let scale = match random.once_in(100) {
        true => 500_000_000,
        false => *random.choose(&[1, 300, 3000]),
    };
    let length = Duration::from_millis(1 + random.below(scale));
    let block = Block::try_new(length).unwrap();
    Blockable::Block(match random.below(3) {
        0 => block.of_new_key(),
        _ => block,
    })
}

/// Asks of blocks and of a rule, about keys of their own, in one request or one after the other.
/// The clock steps back now and then.
#[tokio::test]
async fn blocks_equal_those_of_memory() {
    let redis = servers::Redis::start();
    let store: Redis<Rule> = Redis::connect(redis.url()).await.unwrap();
    let (limits, blocks) = (Policy::new("limit"), Policy::new("block"));
    let (mut made, mut left, mut compared) = (0, 0, 0);
    for seed in 0..cases(80).max(5) {
        let mut random = Random::new(seed);
        let text = RULES[seed as usize % RULES.len()];
        let rule = Rule::from(text.parse::<AnyRule>().unwrap());
        let mut states: [Option<State>; 4] = [const { None }; 4];
        let mut now = 1_767_235_685_123_456_u64;
        for call in 0..100 {
            match random.below(8) {
                0 => now -= random.below(5 * TENTHS),
                1 => now += random.below(40 * TENTHS),
                2..6 => now += random.below(3 * TENTHS),
                _ => {}
            }
            let at = Timestamp::from_nanos(now * 1000);
            let count = 1 + random.below(3);
            let asked: Vec<_> = (0..count)
                .map(|_| match random.below(2) {
                    0 => (any_block(&mut random), random.below(2) as usize),
                    _ => (rule.clone(), 2 + random.below(2) as usize),
                })
                .collect();
            let asks = asked.iter().map(|(rule, place)| {
                let policy = if *place < 2 { &blocks } else { &limits };
                Ask::new(policy, rule, Key::from(*place as u64), Cost::ONE)
            });
            let asks: Vec<_> = asks.collect();
            let answers = store.acquire_each_at(at, &asks).await.unwrap();
            for ((rule, place), answer) in asked.iter().zip(answers) {
                let step = rule.step(&mut states[*place], at, Cost::ONE);
                let (found, expected) = (in_micros(&answer.as_slice()[0]), step.decision());
                let expected = in_micros(&expected);
                assert_eq!(
                    found, expected,
                    "{text}, seed {seed}, call {call}: {rule:?}"
                );
                if let Blockable::Block(_) = rule {
                    made += u64::from(answer.is_admitted());
                    left += u64::from(!answer.is_admitted());
                }
            }
        }
        // Each state is written as this side writes it.
        for name in state_keys(&redis) {
            let Reply::Bytes(bytes) = redis.reply(&[&b"GET"[..], &name[..]]) else {
                continue;
            };
            let written = with_entries(&redis, &name, parts(&bytes));
            let mut expected = states.iter().enumerate().filter_map(|(place, state)| {
                let block = Rule::Block(Block::try_new(Duration::from_secs(1)).unwrap());
                let rule = if place < 2 { &block } else { &rule };
                let mut parts = Vec::new();
                rule.state_parts(state.as_ref()?, &mut parts);
                Some(parts)
            });
            assert!(
                expected.any(|parts| parts == written),
                "{text}: {written:?}"
            );
            compared += 1;
        }
        redis.command(&["FLUSHALL"]);
    }
    let often = (made + left) / 5;
    assert!(made > often && left > often, "{made} made, {left} not");
    assert!(compared > 10, "{compared}");
}
