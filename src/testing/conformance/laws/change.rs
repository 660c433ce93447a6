//! Rules that change while keys are known.

use std::fmt::Debug;

use super::super::bench::{Bench, Kept};
use crate::{algorithm::Algorithm, store::Store};

/// As many changes are tried.
const CHANGES: usize = 40;

impl<R, S> Bench<'_, R, S>
where
    R: Algorithm + Debug,
    S: Store<R, Error: Debug>,
{
    pub(in super::super) async fn change(&mut self) -> Kept {
        let rules = &self.suite.rules;
        if rules.len() < 2 {
            return Err(self.unchecked("there is one rule alone; give the suite another one"));
        }
        // All neighbours first, then those further apart.
        let apart = (1..rules.len()).flat_map(|apart| (0..rules.len()).map(move |n| (n, apart)));
        for (n, apart) in apart.take(CHANGES) {
            let (old, new) = (&rules[n], &rules[(n + apart) % rules.len()]);
            self.begin(old);
            let (spent, calm) = (self.place("spent"), self.place("calm"));
            self.exhaust(&spent, old).await?;
            self.acquire(&calm, old, 1).await?;
            for place in [&spent, &calm] {
                self.look(place, new).await?;
                self.acquire(place, new, 1).await?;
                self.look(place, old).await?;
                self.acquire(place, old, 1).await?;
                self.acquire(place, new, 1).await?;
            }
        }
        Ok(())
    }
}
