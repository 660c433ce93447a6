//! The bytes of a state, and invalid bytes.

use tollgate::{Charge, algorithm::Codec};

use super::*;

fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Encodes a state by hand.
fn bytes(written_at: u64, window: u64, slices: u64, counters: &[u64]) -> Vec<u8> {
    let mut bytes = vec![0x29];
    for number in [written_at, window, slices].iter().chain(counters) {
        put(&mut bytes, *number);
    }
    bytes
}

fn words() -> impl Strategy<Value = u64> {
    prop_oneof![
        0..10_u64,
        0..=u64::MAX,
        Just(u64::MAX),
        Just(u64::MAX - 1),
        Just(1 << 63),
        Just((1 << 63) - 1)
    ]
}

fn rules() -> [SlidingWindow; 6] {
    [
        "100/1m",
        "100/1m slices=7",
        "3/1ns",
        "1/100ns slices=60",
        "1/9223372036854775807ns slices=60",
        "1099511627776/s slices=59",
    ]
    .map(rule)
}

/// Runs every operation on a state. None may panic, and all must agree.
fn use_all(state: &SlidingWindowState, now: u64, cost: u64, charged_at: u64) {
    for rule in rules() {
        let look = rule.look(Some(state), at(now));
        assert_eq!(look.is_admitted(), look.remaining().unwrap() > 0);
        let mut written = Some(state.clone());
        let spent = rule.step(&mut written, at(now), Cost::new(cost).unwrap_or(Cost::ONE));
        assert_eq!(
            spent.decision().is_admitted(),
            look.remaining().unwrap() >= cost.max(1)
        );
        let charge = Charge::new(at(charged_at), cost).with_delay(None);
        for actual in [0, u64::MAX] {
            rule.settle(&mut written, &charge, at(now), actual);
            let known = written.as_ref().unwrap();
            assert!(rule.look(Some(known), at(now)).remaining().unwrap() <= rule.quota().amount());
            let end = rule.forgettable_at(known);
            assert!(end == Timestamp::MAX || rule.look(Some(known), end).reset_after().is_zero());
        }
    }
}

proptest! {
    #[test]
    fn any_state_survives_encoding_and_can_be_used(
        written_at in words(), window in prop_oneof![1..3000_u64, 1..=i64::MAX as u64, Just(i64::MAX as u64)],
        counters in prop::collection::vec(words(), 2..=61), now in words(), cost in words(), charged_at in words(),
        back in 0..3000_u64,
    ) {
        let slices = (counters.len() as u64 - 1).min(window);
        let counters = &counters[..=slices as usize];
        let bytes = bytes(written_at.min(u64::MAX - 1), window, slices, counters);
        let state = SlidingWindowState::from_bytes(&bytes).unwrap();
        prop_assert_eq!(state.to_bytes(), bytes);
        use_all(&state, now, cost, charged_at);
        use_all(&state, written_at.saturating_add(back), cost, written_at.saturating_sub(back));
    }

    #[test]
    fn any_bytes_are_read_without_panic(
        mut bytes in prop::collection::vec(prop_oneof![0..3_u8, any::<u8>()], 0..60), now in words(),
        cost in words(), tagged: bool,
    ) {
        if let Some(first) = bytes.first_mut().filter(|_| tagged) {
            *first = 0x29;
        }
        if let Ok(state) = SlidingWindowState::from_bytes(&bytes) {
            use_all(&state, now, cost, now);
        }
    }
}

#[test]
fn an_invalid_state_is_rejected() {
    let most = i64::MAX as u64;
    let zeros = [0; 102];
    for (window, slices, counters, fits) in [
        (1, 1, 2, true),
        (0, 1, 2, false),
        (most, 1, 2, true),
        (most + 1, 1, 2, false),
        (7, 0, 1, false),
        (7, 7, 8, true),
        (7, 8, 9, false),
        (61, 60, 61, true),
        (62, 61, 62, false),
        (7, 2, 2, false),
        (7, 2, 4, false),
        (u64::MAX, u64::MAX, 2, false),
    ] {
        let bytes = bytes(5, window, slices, &zeros[..counters]);
        let state = SlidingWindowState::from_bytes(&bytes);
        assert_eq!(
            state.is_ok(),
            fits,
            "{slices} slices in {window} ns, {counters} counters"
        );
    }
    let other = [&[0x21][..], &bytes(5, 7, 1, &[0; 2])[1..]].concat();
    assert!(SlidingWindowState::from_bytes(&other).is_err());
}
