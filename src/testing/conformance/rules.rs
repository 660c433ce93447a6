//! The default rules of a suite.

use crate::algorithm::AnyRule;

/// Rules of each algorithm: slow ones, whose calls can be counted, and fast ones, whose waits are short.
const RULES: [&str; 18] = [
    "token-bucket 5/1h",
    "token-bucket 20/1s burst=3",
    "token-bucket 100/1m burst=150",
    "token-bucket 30/1s burst=4 initial=0",
    "token-bucket 4/1h burst=6 initial=2",
    "leaky-bucket 20/1s queue=4",
    "leaky-bucket 6/1h queue=5",
    "fixed-window 4/1d offset=spread",
    "fixed-window 3/200ms",
    "fixed-window 5/1h from=first-call",
    "sliding-window 6/1h slices=4",
    "sliding-window 4/200ms",
    "sliding-log 4/1h",
    "warm-up 6/s over=2s",
    "warm-up-spaced 20/s over=4s max-wait=1s",
    "cascade 4/1h > 3/1d",
    "three-color 4/1h burst=4 peak=6/1h peak-burst=6 aware",
    "token-bucket 6/1h & fixed-window 4/1d",
];

/// Returns the rules.
pub(super) fn rules() -> impl Iterator<Item = AnyRule> {
    // A test ensures that all of them can be parsed.
    RULES.iter().filter_map(|text| text.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::NAMES;

    #[test]
    fn there_are_rules_of_each_algorithm() {
        assert_eq!(rules().count(), RULES.len(), "each can be parsed");
        let names: Vec<_> = RULES
            .map(|text| text.split(' ').next().unwrap_or_default())
            .into();
        for name in NAMES {
            assert!(names.contains(name), "{name}");
        }
    }
}
