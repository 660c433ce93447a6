//! Blocks against an oracle that remembers all of them, and their states as bytes.

use std::time::Duration;

use proptest::prelude::*;
use tollgate::{
    Cost, Timestamp, TokenBucket,
    algorithm::{Algorithm, Block, Blockable, Codec, Step},
};

type State = <Block as Algorithm>::State;

const MILLI: u64 = 1_000_000;
const BEGIN: u64 = 1_767_235_685_000 * MILLI;

fn at(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(nanos)
}

/// Returns the bytes of a state, written the slow obvious way.
fn bytes(until: u64, level: u8) -> Vec<u8> {
    let mut bytes = vec![0x59];
    let mut rest = until;
    while rest >= 128 {
        bytes.push((rest % 128) as u8 + 128);
        rest /= 128;
    }
    bytes.extend([rest as u8, level]);
    bytes
}

#[derive(Clone, Debug)]
enum Op {
    /// The clock goes so far, or back.
    Go(i64),
    /// Goes to the end of the block, but for so many nanoseconds.
    GoToEnd(u64),
    Block {
        millis: u64,
        extends: bool,
    },
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let span = prop_oneof![1..50_u64, 1..100_000_u64, Just(365 * 86_400_000)];
    let nanos = 1000 * MILLI as i64;
    let op = prop_oneof![
        2 => (-nanos..4 * nanos).prop_map(Op::Go),
        1 => (0..2_u64).prop_map(Op::GoToEnd),
        3 => (span, any::<bool>()).prop_map(|(millis, extends)| Op::Block { millis, extends }),
    ];
    prop::collection::vec(op, 1..40)
}

proptest! {
    /// 1. A key is blocked until the latest end of all blocks that were made, also if the clock
    ///    steps back.
    /// 2. A charge is admitted if it moves that end; one of a new key, if no block lasts.
    /// 3. A refusal leaves the state alone, and the same charge passes after its wait, and not a
    ///    nanosecond sooner.
    /// 4. A look is refused while a block lasts, with the exact rest.
    /// 5. The level stays while a block lasts, is 0 in a new one, and all of the state survives as
    ///    bytes.
    #[test]
    fn the_latest_end_holds(ops in ops(), level: u8) {
        let (mut now, first) = (BEGIN, BEGIN + 500 * MILLI);
        let mut state = Some(State::from_bytes(&bytes(first, level)).unwrap());
        let (mut ends, mut level) = (vec![first], level);
        for op in ops {
            let last = *ends.iter().max().unwrap();
            match op {
                Op::Go(by) => now = now.saturating_add_signed(by),
                Op::GoToEnd(before) => now = last - before,
                Op::Block { millis, extends } => {
                    let block = Block::try_new(Duration::from_millis(millis)).unwrap();
                    let block = if extends { block } else { block.of_new_key() };
                    let end = now + millis * MILLI;
                    let is_made = end > last && (extends || last <= now);
                    let before = state;
                    let step = block.step(&mut state, at(now), Cost::ONE);
                    let decision = step.decision();
                    prop_assert_eq!(decision.is_admitted(), is_made);
                    prop_assert_eq!(matches!(step, Step::Wrote(_)), is_made);
                    if is_made {
                        if last <= now {
                            level = 0;
                        }
                        ends.push(end);
                        prop_assert_eq!(decision.reset_after(), block.duration());
                    } else {
                        prop_assert_eq!(state, before);
                        let wait = decision.retry_after().unwrap().as_nanos() as u64;
                        for (wait, passes) in [(wait, true), (wait - 1, false)] {
                            let again = block.step(&mut state.clone(), at(now + wait), Cost::ONE);
                            prop_assert_eq!(again.decision().is_admitted(), passes, "{}", wait);
                        }
                    }
                }
            }
            let last = *ends.iter().max().unwrap();
            let left = Duration::from_nanos(last.saturating_sub(now));
            let any = Block::try_new(Duration::from_secs(1)).unwrap();
            let look = any.look(state.as_ref(), at(now));
            prop_assert_eq!(look.is_admitted(), left.is_zero());
            prop_assert_eq!(look.retry_after(), Some(left));
            prop_assert_eq!((look.reset_after(), look.remaining()), (left, Some(u64::from(left.is_zero()))));
            let written = state.unwrap().to_bytes();
            prop_assert_eq!(&written, &bytes(last, level));
            prop_assert_eq!(State::from_bytes(&written).unwrap(), state.unwrap());
            let both = <Blockable<TokenBucket> as Algorithm>::State::from_bytes(&written).unwrap();
            prop_assert_eq!(both.to_bytes(), written);
        }
    }

    #[test]
    fn any_bytes_are_read_without_panic(rest: Vec<u8>) {
        let bytes = [&[0x59][..], &rest].concat();
        if let Ok(state) = State::from_bytes(&bytes) {
            prop_assert_eq!(State::from_bytes(&state.to_bytes()).unwrap(), state);
        }
    }
}

#[test]
fn a_block_of_a_newer_version_is_told_from_damage() {
    for (first, is_newer) in [(0x59, None), (0x5a, Some(true)), (0x58, Some(false))] {
        let mut bytes = bytes(BEGIN, 0);
        bytes[0] = first;
        let error = State::from_bytes(&bytes).err();
        assert_eq!(error.map(|error| error.is_newer_state()), is_newer);
        let both = <Blockable<TokenBucket> as Algorithm>::State::from_bytes(&bytes).err();
        assert_eq!(both.map(|error| error.is_newer_state()), is_newer);
    }
}
