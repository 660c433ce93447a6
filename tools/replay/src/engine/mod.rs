//! Decides each call with the bare rule, at the time of the call. Per key, time never goes back.
//!
//! It does not use the store in memory, in which time never goes back for all keys together:
//! recorded calls may be out of order across keys.

pub mod answer;
mod keys;
pub mod line;
mod records;
pub mod rows;
mod rules;

use tollgate::{AnyRule, Cost, Timestamp, algorithm::Algorithm};

use self::{
    answer::{Answer, Verdict},
    keys::{Keys, Known},
    rules::Rules,
};

/// A call: its time, key, and color.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    pub at: Timestamp,
    pub key: &'a [u8],
    /// The color that the call has: 0 green, 1 yellow, 2 red.
    pub class: Option<u8>,
}

/// A rule in force, and the states of all keys.
pub struct Replay {
    rules: Rules,
    keys: Keys,
    /// The number of calls refused because there was no room for their key.
    pub turned_away: u64,
}

impl Replay {
    /// Creates a replay without keys, which stores at most `most` of them.
    pub fn new(rule: AnyRule, most: Option<usize>) -> Self {
        Self {
            rules: Rules::new(rule),
            keys: Keys::new(most),
            turned_away: 0,
        }
    }

    /// Changes the rule from here on. The states are kept.
    pub fn change_rule(&mut self, rule: AnyRule) {
        self.rules.change(rule);
        self.keys.rule_changed();
    }

    /// Returns the number of rule changes.
    pub fn changes(&self) -> u64 {
        self.rules.changes()
    }

    /// Spends `cost` if the rule allows it.
    pub fn spend(&mut self, call: Call<'_>, cost: Cost) -> Answer {
        let Call { at, key, class } = call;
        let mut newcomer = None;
        let known = match self.keys.get_mut(key) {
            Some(known) => known,
            None => newcomer.insert(Known::default()),
        };
        let rule = self.rules.met_by(key, &mut known.own, class);
        let decision = rule.step(&mut known.state, at, cost).decision();
        if let Some(charge) = { decision }.take_charge() {
            known.charge = Some((charge, decision.class()));
        }
        match newcomer {
            None => self.keys.written(key, &self.rules),
            // Without a state there is nothing to remember.
            Some(known) if known.state.is_none() => {}
            Some(known) => {
                if !self.keys.remember(key, known, at, &self.rules) {
                    self.turned_away += 1;
                    return Answer::TURNED_AWAY;
                }
            }
        }
        Answer::of(&decision)
    }

    /// Returns the decision that `cost` would get, without spending it.
    ///
    /// The verdict and the waits are those of a step on a copy. The remaining units are the current
    /// ones.
    pub fn look(&mut self, call: Call<'_>, cost: Cost) -> Answer {
        let Call { at, key, class } = call;
        let mut unknown = Known::default();
        let known = self.keys.get_mut(key).unwrap_or(&mut unknown);
        let rule = self.rules.met_by(key, &mut known.own, class);
        let step = rule.step(&mut known.state.clone(), at, cost).decision();
        let look = rule.look(known.state.as_ref(), at);
        Answer {
            remaining: look.remaining(),
            reset_after: Some(look.reset_after()),
            ..Answer::of(&step)
        }
    }

    /// Refunds the key's last charge, unless it was refunded before.
    pub fn refund(&mut self, call: Call<'_>) -> Answer {
        let Call { at, key, class } = call;
        let mut unknown = Known::default();
        let known = self.keys.get_mut(key).unwrap_or(&mut unknown);
        let rule = self.rules.met_by(key, &mut known.own, class);
        let refunded = known.charge.take();
        if let Some((charge, _)) = &refunded {
            rule.settle(&mut known.state, charge, at, 0);
        }
        let look = rule.look(known.state.as_ref(), at);
        let answer = Answer {
            verdict: if refunded.is_some() {
                Verdict::Allow
            } else {
                Verdict::Deny
            },
            class: refunded.map(|(_, class)| class),
            remaining: look.remaining(),
            retry_after: None,
            reset_after: Some(look.reset_after()),
            delay: None,
        };
        self.keys.written(key, &self.rules);
        answer
    }
}
