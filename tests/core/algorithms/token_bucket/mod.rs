//! The token bucket obeys the laws, and equals its oracle.

mod one_every;
mod oracle;

use proptest::prelude::*;
use tollgate::{Timestamp, TokenBucket};

use crate::algorithms::laws::{Keeps, Op, beginnings, hold, ops};

fn rules() -> Vec<TokenBucket> {
    [
        "100/1m",
        "7/1s burst=3",
        "3/1s burst=30",
        "1/365d",
        "30000000/s",
        "5/10s burst=1",
        "100/1m keep-free=30",
        "100/1m keep-free=99",
    ]
    .map(|text| format!("token-bucket {text}").parse().unwrap())
    .to_vec()
}

proptest! {
    #[test]
    fn laws_hold(begin in beginnings(), first in 0..8_usize, ops in ops(60_000_000_000, 100)) {
        let mut rules = rules();
        rules.rotate_left(first);
        hold(&rules, Keeps::ALL, begin, &ops);
    }

    #[test]
    fn laws_hold_with_another_initial_fill(begin in beginnings(), ops in ops(10_000_000_000, 5)) {
        let rules: [TokenBucket; 4] = [
            "token-bucket 5/10s initial=0", "token-bucket 5/10s initial=12",
            "token-bucket 5/10s keep-free=2 initial=1", "token-bucket 5/10s keep-free=2 initial=12",
        ].map(|text| text.parse().unwrap());
        // It is forgotten a day after it was full, and then starts over.
        let keeps = Keeps { starts_at_rest: false, never_shrinks: false, ..Keeps::ALL };
        for rule in rules {
            hold(&[rule], keeps, begin, &ops);
        }
    }
}

#[test]
fn the_timelines_contain_refusals_and_admissions() {
    let rule = [TokenBucket::per_second(2)];
    let ops = [
        Op::Spend(2),
        Op::Spend(1),
        Op::ToRetry { early: false },
        Op::Spend(1),
        Op::Settle(0),
    ];
    hold(&rule, Keeps::ALL, Timestamp::from_nanos(5), &ops);
}
