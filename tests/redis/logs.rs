//! The logs beside states.

use super::servers::{self, Reply};

/// The number of a sliding log in scripts.
const LOG: i64 = 10;

/// Returns the keys of states, without those of logs.
pub(crate) fn state_keys(server: &servers::Redis) -> Vec<Vec<u8>> {
    let is_log = |key: &Vec<u8>| key.windows(6).any(|part| part == b"}/log-");
    let mut keys = server.keys();
    keys.retain(|key| !is_log(key));
    keys
}

/// Replaces each log of a state by its entries, one after the other: instant and units.
pub(crate) fn with_entries(
    server: &servers::Redis,
    state: &[u8],
    mut parts: Vec<Option<Vec<i64>>>,
) -> Vec<Option<Vec<i64>>> {
    for (n, part) in parts.iter_mut().enumerate() {
        if let Some([LOG, over, gone, last, units, newest]) = part.as_deref() {
            let (slots, [over, last]) = (
                slots(server, state, n + 1),
                [*over, *last].map(|n| n as usize),
            );
            let sum = |slots: &[(i64, i64)]| slots.iter().map(|slot| slot.1).sum::<i64>();
            assert_eq!(sum(&slots[..over]), *gone);
            assert_eq!(sum(&slots[..last]), *units);
            assert_eq!(slots[last - 1].0, *newest);
            let entries = slots[over..last].iter().filter(|slot| slot.1 > 0);
            let entries = entries.flat_map(|(at, units)| [*at, *units]);
            *part = Some([LOG].into_iter().chain(entries).collect());
        }
    }
    parts
}

/// Returns the instant of each slot and its own units, added up the slow way.
fn slots(server: &servers::Redis, state: &[u8], part: usize) -> Vec<(i64, i64)> {
    let client = 1 + state.iter().position(|byte| *byte == b'}').unwrap();
    let end = [format!("-{part}").as_bytes(), &state[client..]].concat();
    let mut keys = server.keys().into_iter();
    let is_log = |key: &Vec<u8>| key.starts_with(&state[..client]) && key.ends_with(&end);
    let key = keys.find(is_log).expect("a log");
    let Reply::Bytes(bytes) = server.reply(&[&b"GET"[..], &key[..]]) else {
        panic!("no log under {key:?}")
    };
    let number = |bytes: &[u8]| i64::from_be_bytes(bytes.try_into().unwrap());
    let mut slots = Vec::<(i64, i64)>::new();
    for (n, slot) in bytes.chunks_exact(16).enumerate() {
        let covers = (n + 1) & (n + 1).wrapping_neg();
        let before: i64 = slots[n + 1 - covers..].iter().map(|slot| slot.1).sum();
        slots.push((number(&slot[..8]), number(&slot[8..]) - before));
    }
    slots
}
