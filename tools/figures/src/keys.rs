//! Which key a call is for.

use crate::random::{Millionths, Random};

/// The choice of the keys of calls, which are numbers from 0 on.
#[derive(Clone, Debug)]
pub enum KeyChoice {
    One,
    /// All keys alike.
    Uniform(u64),
    /// Key 0 has a part of the calls, the others share the rest.
    Hot {
        keys: u64,
        part: Millionths,
    },
    /// Key `k` has a weight of `1 / (k + 1)ˢ`, with `s` in millionths.
    Zipf {
        keys: u64,
        exponent: Millionths,
    },
}

/// Chooses keys.
pub(crate) struct Keys {
    choice: KeyChoice,
    /// Of Zipf's law: the sum of the weights up to each key.
    sums: Vec<f64>,
}

impl Keys {
    pub(crate) fn new(choice: &KeyChoice) -> Self {
        let mut sums = Vec::new();
        if let KeyChoice::Zipf { keys, exponent } = choice {
            let (mut sum, exponent) = (0.0, f64::from(*exponent) / 1e6);
            for key in 0..*keys {
                sum += libm::pow((key + 1) as f64, -exponent);
                sums.push(sum);
            }
        }
        Self {
            choice: choice.clone(),
            sums,
        }
    }

    pub(crate) fn choose(&self, random: &mut Random) -> u64 {
        match self.choice {
            KeyChoice::One => 0,
            KeyChoice::Uniform(keys) => random.below(keys.max(1)),
            KeyChoice::Hot { part, .. } if random.happens(part) => 0,
            KeyChoice::Hot { keys, .. } => 1 + random.below(keys.saturating_sub(1).max(1)),
            KeyChoice::Zipf { .. } => {
                let all = self.sums.last().copied().unwrap_or_default();
                let point = random.fraction() * all;
                let key = self.sums.partition_point(|sum| *sum < point);
                key.min(self.sums.len().saturating_sub(1)) as u64
            }
        }
    }
}
