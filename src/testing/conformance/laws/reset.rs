//! Forgetting one key.

use std::fmt::Debug;

use super::super::bench::{Bench, Kept};
use crate::{algorithm::Algorithm, store::Store};

impl<R, S> Bench<'_, R, S>
where
    R: Algorithm + Debug,
    S: Store<R, Error: Debug>,
{
    pub(in super::super) async fn resets(&mut self) -> Kept {
        for rule in &self.suite.rules {
            self.begin(rule);
            let (alice, bob) = (self.place("alice"), self.place("bob"));
            let elsewhere = self.named("alice elsewhere", " elsewhere", alice.key);
            for place in [&alice, &bob, &elsewhere] {
                self.exhaust(place, rule).await?;
            }
            for _ in 0..2 {
                self.reset(&alice).await?;
                let first = self.acquire(&alice, rule, 1).await?;
                if !self.begins_afresh(&alice, rule, &first) {
                    return Err(self.breach("a key that was reset does not begin afresh"));
                }
                self.exhaust(&alice, rule).await?;
            }
            self.look(&bob, rule).await?;
            self.look(&elsewhere, rule).await?;
            // Nobody: as it never was.
            let nobody = self.place("nobody");
            self.reset(&nobody).await?;
            self.acquire(&nobody, rule, 1).await?;
        }
        Ok(())
    }
}
