//! The states that the program writes, number by number, and its arithmetic.

use tollgate::{
    AnyRule, Cost, Policy, Timestamp,
    algorithm::{Algorithm, Scripted, Step},
    key::Key,
    store::{Redis, driver::Ask},
};

use super::{
    Random, TENTHS,
    logs::{state_keys, with_entries},
    rules::{RULES, UNEVEN, UNEVEN_SECONDS},
    servers::{self, Reply},
};

/// Decodes the parts of a state; `None` for a missing part.
pub(super) fn parts(mut bytes: &[u8]) -> Vec<Option<Vec<i64>>> {
    use rmp::decode::{read_array_len, read_int};
    let bytes = &mut bytes;
    let count = read_array_len(bytes).unwrap() - 1;
    assert_eq!(read_int::<i64, _>(bytes).unwrap(), 1);
    let part = |_| {
        if bytes[0] == 0xc2 {
            *bytes = &bytes[1..];
            return None;
        }
        let numbers = read_array_len(bytes).unwrap();
        Some((0..numbers).map(|_| read_int(bytes).unwrap()).collect())
    };
    (0..count).map(part).collect()
}

/// A single rule writes what this side computes for the same calls.
#[tokio::test]
async fn states_equal_those_of_memory() {
    let redis = servers::Redis::start();
    let store: Redis<AnyRule> = Redis::connect(redis.url()).await.unwrap();
    let paces = [
        (TENTHS, &RULES[..]),
        (1, &UNEVEN),
        (TENTHS, &UNEVEN_SECONDS),
    ];
    let all = paces.iter().flat_map(|(unit, sets)| {
        let rules = sets.iter().flat_map(|(_, rules)| rules.iter());
        rules.map(|rule| (*unit, *rule))
    });
    for (number, (unit, text)) in all.enumerate() {
        let (rule, policy): (AnyRule, _) = (text.parse().unwrap(), Policy::new("limit"));
        let key = Key::from(number as u64);
        let cost = |units| Cost::new(units).unwrap();
        let ask = Ask::new(&policy, &rule, key, Cost::ONE);
        let rule = ask.rule_for_key().unwrap_or_else(|| rule.clone());
        let rule = rule.in_script().unwrap_or(rule);
        let mut random = Random::new(number as u64);
        let (mut state, mut now) = (None, 1_767_235_685_123_456_u64);
        let (mut name, mut writes) = (None, 0);
        for call in 0..150 {
            now += random.below(3) * random.below(4 * unit);
            let at = Timestamp::from_nanos(now * 1000);
            let cost = cost(1 + random.below(3));
            let decisions = store
                .acquire_at(at, &[Ask::new(&policy, &rule, key, cost)])
                .await
                .unwrap();
            let expected = rule.step(&mut state, at, cost).decision();
            assert_eq!(decisions.is_admitted(), expected.is_admitted(), "{text}");
            if !expected.is_admitted() {
                continue;
            }
            writes += 1;
            let name = name.get_or_insert_with(|| state_keys(&redis).remove(0));
            let Reply::Bytes(bytes) = redis.reply(&[&b"GET"[..], &name[..]]) else {
                panic!("{text}: nothing under the key")
            };
            let mut expected = Vec::new();
            rule.state_parts(state.as_ref().unwrap(), &mut expected);
            let written = with_entries(&redis, name, parts(&bytes));
            assert_eq!(written, expected, "{text}, call {call}");
        }
        assert!(writes > 10, "{text}: {writes}");
        redis.command(&["FLUSHALL"]);
    }
}

/// Under rules of different windows a refusal writes, too: only the count that carries over.
#[tokio::test]
async fn a_count_that_a_refusal_carries_over_is_written() {
    const WINDOWS: [&str; 6] = [
        "fixed-window 9/1s",
        "fixed-window 20/3s offset=1s",
        "fixed-window 5/700ms from=first-call",
        "fixed-window 3/300ms offset=77us",
        "fixed-window 12/1100ms from=first-call",
        // Windows that end later than a script can count.
        "fixed-window 30/104000d from=first-call",
    ];
    let redis = servers::Redis::start();
    let store: Redis<AnyRule> = Redis::connect(redis.url()).await.unwrap();
    let rules = WINDOWS.map(|text| text.parse::<AnyRule>().unwrap());
    let (policy, mut random) = (Policy::new("limit"), Random::new(9));
    let stored = || {
        let name = redis.keys().pop()?;
        Some(redis.reply(&[b"GET", &name[..]]))
    };
    let (mut carried, mut kept) = (0, 0);
    for client in 0..20_u64 {
        let key = Key::from(client);
        let (mut state, mut now) = (None, 1_767_235_685_123_456_u64);
        for call in 0..100 {
            match random.below(8) {
                0 => now -= random.below(3 * TENTHS),
                1 => now += random.below(20 * TENTHS),
                2..6 => now += random.below(TENTHS),
                _ => {}
            }
            // The last rule is rare, because its windows never end.
            let rule = &rules[random.below(if call < 80 { 5 } else { 6 }) as usize];
            let (at, cost) = (Timestamp::from_nanos(now * 1000), 1 + random.below(6));
            let cost = Cost::new(cost).unwrap();
            let before = stored();
            let asks = [Ask::new(&policy, rule, key, cost)];
            let decisions = store.acquire_at(at, &asks).await.unwrap();
            let step = rule.step(&mut state, at, cost);
            let context = format!("client {client}, call {call} at {now} µs, {rule}: {step:?}");
            let admitted = step.decision().is_admitted();
            assert_eq!(decisions.is_admitted(), admitted, "{context}");
            let after = stored();
            if matches!(step, Step::Kept(_)) {
                kept += 1;
                assert_eq!(after, before, "{context}");
                continue;
            }
            carried += u64::from(!admitted);
            let mut expected = Vec::new();
            rule.state_parts(state.as_ref().unwrap(), &mut expected);
            let Some(Reply::Bytes(bytes)) = after else {
                panic!("{context}: {after:?}")
            };
            assert_eq!(parts(&bytes), expected, "{context}");
        }
        redis.command(&["FLUSHALL"]);
    }
    assert!(carried > 100 && kept > 300, "{carried} {kept}");
}

/// Runs `tail` after the script of number functions, on this many arguments at once.
fn evaluate(redis: &servers::Redis, tail: &str, arguments: &[u64]) -> Vec<String> {
    let source = concat!(
        include_str!("../../../src/store/script/lua/numbers.lua"),
        include_str!("../../../src/store/script/lua/factors.lua"),
        "\n"
    );
    let mut command = vec!["EVAL".to_owned(), format!("{source}{tail}"), "0".to_owned()];
    command.extend(arguments.iter().map(u64::to_string));
    let answer = redis.command(&command);
    answer.split(',').map(str::to_owned).collect()
}

/// Returns a number below `2^bits`, of random length.
fn of_any_length(random: &mut Random, bits: u64) -> u64 {
    let bits = 1 + random.below(bits);
    random.below(1 << bits)
}

#[test]
fn products_are_divided_exactly() {
    const TAIL: &str = "local answer = {}
        for n = 1, #ARGV, 3 do
          local quotient, rounded = mul_div(tonumber(ARGV[n]), tonumber(ARGV[n + 1]), tonumber(ARGV[n + 2]))
          answer[#answer + 1] = string.format('%.0f %d', quotient, rounded)
        end
        return table.concat(answer, ',')";
    let redis = servers::Redis::start();
    let mut random = Random::new(7);
    for _ in 0..100 {
        let mut cases = Vec::new();
        while cases.len() < 300 {
            let mut x = of_any_length(&mut random, 52);
            let mut y = of_any_length(&mut random, 52);
            let z = 1 + of_any_length(&mut random, 51).min((1 << 51) - 1);
            match random.below(4) {
                // The quotient is whole, or nearly.
                0 => x = z.saturating_sub(random.below(3)),
                1 => (x, y) = (z / 2, y & !1),
                _ => {}
            }
            if u128::from(x) * u128::from(y) / u128::from(z) < 1 << 52 {
                cases.extend([x, y, z]);
            }
        }
        let found = evaluate(&redis, TAIL, &cases);
        let expected = cases.chunks(3).map(|case| {
            let [x, y, z] = [0, 1, 2].map(|n| u128::from(case[n]));
            format!("{} {}", x * y / z, u8::from(x * y % z > 0))
        });
        for (n, expected) in expected.enumerate() {
            assert_eq!(found[n], expected, "{:?}", &cases[3 * n..3 * n + 3]);
        }
    }
}

#[test]
fn fractions_are_compared_exactly() {
    const TAIL: &str = "local answer = {}
        for n = 1, #ARGV, 4 do
          local a, b, c, d = tonumber(ARGV[n]), tonumber(ARGV[n + 1]), tonumber(ARGV[n + 2]), tonumber(ARGV[n + 3])
          answer[#answer + 1] = at_most(a, b, c, d) and '1' or '0'
        end
        return table.concat(answer, ',')";
    let redis = servers::Redis::start();
    let mut random = Random::new(8);
    let mut equal = 0;
    for _ in 0..100 {
        let cases: Vec<u64> = (0..100)
            .flat_map(|_| {
                let [mut a, mut c] = [0; 2].map(|_: u64| of_any_length(&mut random, 53));
                let [mut b, mut d] = [0; 2].map(|_: u64| 1 + of_any_length(&mut random, 52));
                if random.below(2) == 0 {
                    // Nearly or exactly the same fraction.
                    let [p, q] = [0; 2].map(|_: u64| 1 + of_any_length(&mut random, 26));
                    let [k, l] = [0; 2].map(|_: u64| 1 + random.below(1 << 26));
                    (a, b, c, d) = (p * k, q * k, p * l, q * l);
                    match random.below(4) {
                        0 => a += 1,
                        1 => c += 1,
                        2 => b += 1,
                        _ => {}
                    }
                }
                [a, b, c, d]
            })
            .collect();
        let found = evaluate(&redis, TAIL, &cases);
        for (case, found) in cases.chunks(4).zip(found) {
            let [a, b, c, d] = [0, 1, 2, 3].map(|n| u128::from(case[n]));
            equal += u32::from(a * d == c * b);
            let expected = if a * d <= c * b { "1" } else { "0" };
            assert_eq!(found, expected, "{case:?}");
        }
    }
    assert!(equal > 500, "{equal}");
}
