//! Settling and resetting.

use std::fmt::Debug;

use super::{Asked, Bench, Kept};
use crate::{
    algorithm::Algorithm,
    decision::Charge,
    store::{Settlement, Store},
    testing::conformance::place::Place,
};

/// A correction of the suite's.
pub(in super::super) struct Corrected<'a, R> {
    pub(in super::super) place: &'a Place,
    pub(in super::super) rule: &'a R,
    pub(in super::super) charge: Charge,
    pub(in super::super) actual: u64,
}

impl<R, S> Bench<'_, R, S>
where
    R: Algorithm + Debug,
    S: Store<R, Error: Debug>,
{
    /// Settles, and looks at what that left.
    pub(in super::super) async fn settle(&mut self, corrected: &[Corrected<'_, R>]) -> Kept {
        let Some(first) = corrected.first() else {
            return Ok(());
        };
        let before = self.look(first.place, first.rule).await?;
        let settlements: Vec<_> = corrected
            .iter()
            .map(|corrected| Settlement {
                policy: &corrected.place.policy,
                rule: corrected.rule,
                key: corrected.place.key,
                charge: corrected.charge.duplicate(),
                actual: corrected.actual,
            })
            .collect();
        let each: Vec<_> = corrected
            .iter()
            .map(|it| format!("{} of {} as {}", it.charge.cost, it.place, it.actual))
            .collect();
        let line = format!("settle {}", each.join(" and "));
        let check = self.suite.store.settle(settlements);
        let done = self.patiently(&line, async move { check.await }).await?;
        self.ended(&line, done)?;
        // Its instant lies between those of two looks.
        let looked = [Asked::new(first.place, first.rule, 1)];
        let after = self.decided(&looked, true).await?[0];
        for it in corrected {
            let between = [before.at(), after.at()];
            self.model
                .settle(it.place, it.rule, &it.charge, between, it.actual);
        }
        let compared = self.model.look(first.place, first.rule, &after);
        self.compared(compared, &after)?;
        for it in &corrected[1..] {
            self.look(it.place, it.rule).await?;
        }
        Ok(())
    }

    /// Forgets a key.
    pub(in super::super) async fn reset(&mut self, place: &Place) -> Kept {
        let line = format!("reset {place}");
        let check = self.suite.store.reset(&place.policy, &place.key);
        let done = self.patiently(&line, async move { check.await }).await?;
        self.ended(&line, done)?;
        self.model.forget(place);
        Ok(())
    }

    fn ended(&mut self, line: &str, done: Result<(), S::Error>) -> Kept {
        match done {
            Ok(()) => {
                self.note(line.to_owned());
                Ok(())
            }
            Err(error) => Err(self.breach(format!("{line}: the store failed: {error:?}"))),
        }
    }
}
