//! Random values under a key.

use super::{
    RULES, StoredKey,
    value::{
        Form, Value,
        Value::{Float, Int, List},
        odd_numbers,
    },
};

/// Generates values.
pub(super) struct Random(support::Random);

impl Random {
    pub(super) const fn new(seed: u64) -> Self {
        Self(support::Random::new(seed))
    }

    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.0.below(end)
    }

    /// Generates a number, mostly one that could be in a state at `now`, in microseconds.
    fn number(&mut self, now: i64) -> Value {
        let near = self.below(2_000_000) as i64 - 1_000_000;
        let odd = odd_numbers();
        match self.below(16) {
            0 => Int(now + near),
            1 => Int(now / 1_000_000 + near / 1_000_000),
            2 => Int((1 << 53) - 1 - self.below(3) as i64),
            3 => Int(self.below(1 << 53) as i64),
            4 => Int(-(self.below(1 << 53) as i64)),
            5 => Int((1 << self.below(62)) - 1),
            6 => odd[self.below(odd.len() as u64) as usize].clone(),
            7 => Float(self.below(100) as f64),
            8 => Int(now - self.below(1 << 45) as i64),
            _ => Int(self.below(8) as i64),
        }
    }

    /// Generates a possible state of these kinds, or several states that include one.
    pub(super) fn value(&mut self, kinds: &[i64], now: i64) -> Value {
        if self.below(4) > 0 {
            return self.state(1, kinds, now);
        }
        let mut states = vec![Int(2)];
        for _ in 0..1 + self.below(3) {
            let stop = match self.below(8) {
                0 => self.number(now),
                _ => Int(now + self.below(1 << 40) as i64),
            };
            let other = [self.below(10) as i64];
            let kinds = if self.below(2) == 0 { kinds } else { &other };
            let mut state = self.state(0, kinds, now).items().to_vec();
            if let Some(first) = state.first_mut() {
                *first = stop;
            }
            states.push(List(state));
        }
        List(states)
    }

    fn state(&mut self, first: i64, kinds: &[i64], now: i64) -> Value {
        let mut parts = vec![Int(first)];
        for kind in kinds {
            let mut numbers = vec![Int(*kind)];
            if *kind != 0 {
                for n in 0..3 + self.below(5) {
                    // Most kinds start with an instant.
                    let number = if n == 0 && self.below(2) == 0 {
                        Int(now - self.below(10_000_000) as i64)
                    } else {
                        self.number(now)
                    };
                    numbers.push(number);
                }
            }
            parts.push(List(numbers));
        }
        match self.below(30) {
            0 => {
                let at = self.below(parts.len() as u64) as usize;
                parts[at] = self.number(now);
            }
            1 => parts.push(List(vec![self.number(now), self.number(now)])),
            2 => drop(parts.pop()),
            _ => {}
        }
        List(parts)
    }
}

/// Returns the kinds of the parts that a rule writes.
pub(super) fn kinds(text: &str) -> Vec<i64> {
    let names = [
        "token",
        "fixed",
        "sliding-window",
        "sliding-log",
        "leaky",
        "cascade",
        "three",
        "warm-up ",
        "warm-up-spaced",
    ];
    let own = text.split(" & ").map(|rule| {
        let stored = names.iter().rposition(|name| rule.starts_with(name));
        match stored.unwrap() as i64 + 1 {
            4 => 10,
            kind => kind,
        }
    });
    if text.contains('&') {
        [0].into_iter().chain(own).collect()
    } else {
        own.collect()
    }
}

/// Any value: no error, no more admissions than a key can ever get at once, and a valid state
/// afterwards.
#[tokio::test]
async fn a_random_value_admits_at_most_a_full_bucket() {
    let cases = support::cases(2400);
    for text in RULES {
        let stored = StoredKey::of(text).await;
        let kinds = kinds(text);
        let (fresh, _) = stored.fresh().await;
        let most = if text.starts_with("warm-up") {
            fresh.limit().unwrap()
        } else {
            fresh.remaining().unwrap() + 1
        };
        let mut random = Random::new(kinds[0] as u64);
        let (mut admitted, mut healed) = (0, 0);
        for n in 0..cases {
            let now = fresh.at().as_nanos() as i64 / 1000;
            let value = random.value(&kinds, now);
            let form = *[Form::Short, Form::Short, Form::Wide]
                .get(random.below(3) as usize)
                .unwrap();
            let context = format!("value {n}: {value:?}");
            // A grant on which program and process disagree is an error.
            stored.set(&value.bytes(form));
            stored.grant(&context).await;
            stored.set(&value.bytes(form));
            let before = stored.store.stats().healed;
            let first = stored.acquire(&context).await;
            healed += stored.store.stats().healed - before;
            if !first.is_admitted() {
                continue;
            }
            admitted += 1;
            assert!(
                first.remaining() < Some(most) || text.contains("spaced"),
                "{context}: {first:?}"
            );
            stored.assert_proper(&context);
            let before = stored.store.stats().healed;
            stored.acquire(&context).await;
            assert_eq!(stored.store.stats().healed, before, "{text}, {context}");
        }
        assert!(
            admitted > cases / 6 && healed > cases / 6,
            "{text}: {admitted}, {healed}"
        );
    }
}
