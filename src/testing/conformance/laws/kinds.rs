//! Rules of several kinds on one key: releases whose rules differ, and rules chosen per request.

use std::fmt::Debug;

use super::super::{
    bench::{Bench, Kept},
    place::Place,
};
use crate::{algorithm::Algorithm, store::Store};

/// As many calls use a rule up.
const CALLS: u64 = 4;

impl<R, S> Bench<'_, R, S>
where
    R: Algorithm + Debug,
    S: Store<R, Error: Debug>,
{
    pub(in super::super) async fn kinds(&mut self) -> Kept {
        // The first rule of each kind.
        let mut rules: Vec<&R> = Vec::new();
        for rule in &self.suite.rules {
            if rules
                .iter()
                .all(|one| one.state_kind() != rule.state_kind())
            {
                rules.push(rule);
            }
        }
        for turn in 0..2 {
            self.begin(rules[0]);
            let place = self.place("alice");
            if turn == 0 {
                self.use_up_in_turn(&place, &rules).await?;
            } else {
                for rule in &rules {
                    self.exhaust(&place, rule).await?;
                }
            }
            for rule in rules.iter().rev() {
                self.acquire(&place, rule, 1).await?;
            }
            self.reset_all(&place, &rules).await?;
        }
        for (n, one) in rules.iter().enumerate().skip(1) {
            let pair = [*one, rules[n - 1]];
            self.begin(one);
            let place = self.place("alice");
            self.use_up_in_turn(&place, &pair).await?;
            self.acquire(&place, one, 1).await?;
            self.reset_all(&place, &pair).await?;
        }
        Ok(())
    }

    /// Each rule is asked once, and again, until none of them is left with much.
    async fn use_up_in_turn(&mut self, place: &Place, rules: &[&R]) -> Kept {
        let mut units = Vec::new();
        for rule in rules {
            let left = self.look(place, rule).await?.remaining().unwrap_or(0);
            units.push(left / CALLS + 1);
        }
        for _ in 0..=CALLS {
            for (rule, units) in rules.iter().zip(&units) {
                self.acquire(place, rule, *units).await?;
            }
        }
        Ok(())
    }

    /// A reset names no rule, and clears the states of all kinds.
    async fn reset_all(&mut self, place: &Place, rules: &[&R]) -> Kept {
        self.reset(place).await?;
        for rule in rules {
            let first = self.acquire(place, rule, 1).await?;
            if !self.begins_afresh(place, rule, &first) {
                let what = format!("a key that was reset does not begin afresh under {rule:?}");
                return Err(self.breach(what));
            }
        }
        Ok(())
    }
}
