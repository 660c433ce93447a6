//! The documented maximum is never exceeded, and can be reached.

use support::Random;

use super::*;

/// Returns the most units within `window` nanoseconds, for calls in the order of time.
fn most_within(window: u64, calls: &[(u64, u64)]) -> u64 {
    let from = |begin: u64| {
        calls
            .iter()
            .filter(move |(at, _)| (begin..begin + window).contains(at))
    };
    calls
        .iter()
        .map(|(begin, _)| from(*begin).map(|(_, units)| units).sum())
        .max()
        .unwrap_or(0)
}

fn begin(rule: &SlidingWindow, slice: u64) -> u64 {
    let window = rule.quota().period_nanos();
    u64::try_from((u128::from(slice) * u128::from(window)).div_ceil(u128::from(rule.slice_count())))
        .unwrap()
}

#[derive(Clone, Debug)]
enum Until {
    /// This many slices later, this many nanoseconds before their end.
    End {
        slices: u64,
        before: u64,
    },
    Nanos(u64),
}

fn untils() -> impl Strategy<Value = Until> {
    prop_oneof![
        3 => (0..4_u64, 1..4_u64).prop_map(|(slices, before)| Until::End { slices, before }),
        1 => (0..70_u64, 1..4_u64).prop_map(|(slices, before)| Until::End { slices, before }),
        2 => (0..40 * SECOND).prop_map(Until::Nanos),
    ]
}

proptest! {
    #[test]
    fn never_more_than_twice_the_amount_less_one_in_a_window(
        slices in prop::sample::select(vec![1_u64, 2, 4, 7, 60]), amount in 1..200_u64,
        calls in prop::collection::vec((untils(), prop::option::of(1..50_u64)), 1..80),
    ) {
        let rule = SlidingWindow::per_minute(amount).slices(slices);
        let (mut state, mut now, mut slice, mut admitted) = (None, 0, 0, Vec::new());
        for (until, units) in calls {
            now = match until {
                Until::Nanos(nanos) => now + nanos,
                Until::End { slices, before } => now.max(begin(&rule, slice + slices + 1) - before),
            };
            while begin(&rule, slice + 1) <= now {
                slice += 1;
            }
            let units = units.unwrap_or_else(|| remaining(&rule, &state, now));
            if let Some(cost) = Cost::new(units)
                && rule.step(&mut state, at(now), cost).decision().is_admitted() {
                    admitted.push((now, units));
                }
        }
        prop_assert!(most_within(MINUTE, &admitted) < 2 * amount);
        for windows in 2..5 {
            prop_assert!(most_within(windows * MINUTE, &admitted) <= (windows + 1) * amount);
        }
        for first in 0..slice {
            let (from, to) = (begin(&rule, first), begin(&rule, first + slices));
            let units: u64 = admitted.iter().filter(|(at, _)| (from..to).contains(at)).map(|(_, units)| units).sum();
            prop_assert!(units <= amount, "{} in the slices from {} on", units, first);
        }
    }
}

#[test]
fn twice_the_amount_less_one_passes_with_any_number_of_slices() {
    for slices in [1, 4, 7, 60] {
        let (rule, mut state) = (SlidingWindow::per_minute(100).slices(slices), None);
        let first = begin(&rule, 5 * slices + 1) - 1;
        spend(&rule, &mut state, first, 100);
        // Two nanoseconds before the slice leaves the window, one of the 100 calls still counts.
        let last = first + MINUTE - 1;
        spend(&rule, &mut state, last, 99);
        assert_eq!(
            most_within(MINUTE, &[(first, 100), (last, 99)]),
            199,
            "{slices} slices"
        );
    }
}

/// With more slices the largest error may stay the same, but the mean error shrinks.
#[test]
fn more_slices_cut_the_mean_error() {
    let errors = [1, 4, 60].map(|slices| {
        let (rule, mut state) = (SlidingWindow::per_minute(1_000_000).slices(slices), None);
        let (mut random, mut calls, mut now, mut error) = (Random::new(1), Vec::new(), 0, 0);
        for _ in 0..3000 {
            now += random.below(SECOND);
            let units = 1 + random.below(100);
            spend(&rule, &mut state, now, units);
            calls.push((now, units));
            let inside = calls.iter().rev().take_while(|(at, _)| now - at < MINUTE);
            let exact: u64 = inside.map(|(_, units)| units).sum();
            let estimate = 1_000_000 - remaining(&rule, &state, now);
            error += estimate.abs_diff(exact);
        }
        error
    });
    let [one, four, sixty] = errors;
    assert!(2 * one > 3 * four && four > 3 * sixty, "{errors:?}");
}
