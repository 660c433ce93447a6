//! Two rules on the same requests, each as if it were alone.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use tollgate::{AnyRule, Cost};

use crate::engine::{
    Call, Replay,
    answer::{Answer, Verdict},
};

/// Replays each request under two rules, and counts where they differ.
///
/// The rules have separate states, so neither changes a decision of the other.
pub struct Comparison {
    replays: [Replay; 2],
    rules: [ComparedRule; 2],
    /// The keys that were refused, and by which of the rules.
    refused: HashMap<Box<[u8]>, [bool; 2], RandomState>,
    /// The maximum number of keys, if there is one.
    most: Option<usize>,
    /// `true` if a refused key found no room.
    has_unlisted: bool,
}

/// The counts of one of two rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ComparedRule {
    /// Requests that are admitted at once.
    pub admitted: u64,
    pub delayed: u64,
    pub refused: u64,
    /// Requests that this rule refuses, and the other one admits or delays.
    pub refused_alone: u64,
    /// Distinct keys with at least one refused request.
    pub refused_keys: u64,
}

impl Comparison {
    /// Creates a comparison of two rules. For each, and for the refused keys, at most `most` keys
    /// are stored.
    pub fn new(rules: [AnyRule; 2], most: Option<usize>) -> Self {
        Self {
            replays: rules.map(|rule| Replay::new(rule, most)),
            rules: [ComparedRule::default(); 2],
            refused: HashMap::default(),
            most,
            has_unlisted: false,
        }
    }

    /// Decides a request under both rules.
    pub fn spend(&mut self, call: Call<'_>, cost: Cost) -> [Answer; 2] {
        let replays = self.replays.each_mut();
        let answers = replays.map(|replay| replay.spend(call, cost));
        let refused = answers.map(|answer| answer.verdict == Verdict::Deny);
        for (rule, answer) in self.rules.iter_mut().zip(&answers) {
            match answer.verdict {
                Verdict::Allow => rule.admitted += 1,
                Verdict::Delay => rule.delayed += 1,
                Verdict::Deny => rule.refused += 1,
            }
        }
        if refused[0] != refused[1] {
            self.rules[usize::from(refused[1])].refused_alone += 1;
        }
        if refused.contains(&true) {
            self.note(call.key, refused);
        }
        answers
    }

    /// Notes by which rules a key was refused.
    fn note(&mut self, key: &[u8], refused: [bool; 2]) {
        if !self.refused.contains_key(key) {
            if self.most.is_some_and(|most| self.refused.len() >= most) {
                self.has_unlisted = true;
                return;
            }
            self.refused.insert(key.into(), [false; 2]);
        }
        let Some(before) = self.refused.get_mut(key) else {
            return;
        };
        for (index, rule) in self.rules.iter_mut().enumerate() {
            rule.refused_keys += u64::from(refused[index] && !before[index]);
            before[index] |= refused[index];
        }
    }

    /// Returns the counts of both rules.
    pub fn rules(&self) -> [ComparedRule; 2] {
        self.rules
    }

    /// Returns the number of requests that each rule refused because there was no room for their
    /// key.
    pub fn turned_away(&self) -> [u64; 2] {
        self.replays.each_ref().map(|replay| replay.turned_away)
    }

    /// Returns `true` if the numbers of refused keys are exact, and `false` if some keys found no
    /// room.
    pub fn has_all_keys(&self) -> bool {
        !self.has_unlisted
    }
}
