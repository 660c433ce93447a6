//! Checks that each key, policy and kind of rule has a state of its own, also after a reset or a
//! change of the rule.

use std::net::IpAddr;

use super::{
    super::{
        calls::TestAsk,
        checker::{Burst, CheckResult, Checker, MAX_CALLS, Subject},
    },
    Law,
};
use crate::{
    algorithm::{Algorithm, packed::InMemory},
    decision::Decision,
    key::Key,
    policy::{Policy, Unit},
    time::Timestamp,
};

/// The number of keys in a flood.
const FLOOD: u64 = 256;

/// Checks of similar keys, and of floods of keys.
impl<R: Algorithm> Checker<'_, R> {
    pub(crate) async fn keys(&mut self) -> CheckResult {
        for (n, rule) in self.suite.rules.iter().enumerate() {
            self.begin(rule);
            let hot = self.subject("hot");
            self.exhaust(&hot, rule).await?;
            let subjects = self.similar_keys();
            for subject in &subjects {
                let first = self.acquire(subject, rule, 1).await?;
                if !self.is_like_new(subject, rule, &first) {
                    return Err(self.breach(format!("{subject} is charged for another key")));
                }
            }
            for subject in subjects.iter().rev() {
                self.look(subject, rule).await?;
            }
            self.one_name(rule).await?;
            if n == 0 {
                self.flood(&hot, rule).await?;
            }
        }
        Ok(())
    }

    /// Checks that two policies of one name share their state.
    async fn one_name(&mut self, rule: &R) -> CheckResult {
        let text = self.subject("under one name");
        let bytes = Subject {
            policy: text.policy.clone().with_unit(Unit::ContentBytes),
            ..text.clone()
        };
        self.exhaust(&text, rule).await?;
        self.acquire(&bytes, rule, 1).await.map(drop)
    }

    /// Checks that a flood of new keys, or of calls of one key, does not affect a known key.
    async fn flood(&mut self, hot: &Subject, rule: &R) -> CheckResult {
        let calm = self.subject("calm");
        self.acquire(&calm, rule, 1).await?;
        for _ in 0..FLOOD {
            let one = self.subject("one of many");
            self.acquire(&one, rule, 1).await?;
        }
        self.look(&calm, rule).await?;
        self.acquire(hot, rule, 1).await?;
        for _ in 0..FLOOD {
            self.acquire(hot, rule, 1).await?;
        }
        self.look(&calm, rule).await.map(drop)
    }

    fn similar_keys(&mut self) -> Vec<Subject> {
        let long = |last: &str| format!("{}{last}", "long ".repeat(60));
        let ip = |text: &str| text.parse::<IpAddr>().map_or(Key::GLOBAL, Key::from);
        let keys = [
            ("the global key", Key::GLOBAL),
            ("the empty text", Key::from("")),
            ("no bytes", Key::bytes(b"")),
            ("the text `7`", Key::from("7")),
            ("the number 7", Key::from(7_u64)),
            ("the byte `7`", Key::bytes(b"7")),
            ("the number 7 in bytes", Key::bytes(&7_u64.to_le_bytes())),
            ("the shared key `7`", Key::shared("7")),
            ("the number 263", Key::from(263_u64)),
            ("the text ` 7`", Key::from(" 7")),
            ("the text `7 `", Key::from("7 ")),
            ("the text `Ab`", Key::from("Ab")),
            ("the text `ab`", Key::from("ab")),
            ("the byte 0", Key::bytes(b"\0")),
            ("two bytes 0", Key::bytes(b"\0\0")),
            ("the byte 255", Key::bytes(b"\xff")),
            ("the byte 254", Key::bytes(b"\xfe")),
            ("a text of two lines", Key::from("7\r\nset 8 0 0 1")),
            ("a text in braces", Key::from("{7}")),
            ("a text of wildcards", Key::from("*?[7]%2F../7")),
            ("a text in Greek", Key::from("επτά")),
            ("39 bytes", Key::bytes(&[7; 39])),
            ("40 bytes", Key::bytes(&[7; 40])),
            ("41 bytes", Key::bytes(&[7; 41])),
            ("a long text", Key::from(long("a").as_str())),
            ("another long text", Key::from(long("b").as_str())),
            ("an address", ip("0.0.0.7")),
            ("the same address as IPv6", ip("::ffff:0.0.0.7")),
            ("`a:b` and `c`", Key::join(["a:b", "c"])),
            ("`a` and `b:c`", Key::join(["a", "b:c"])),
            ("the text `a:b:c`", Key::from("a:b:c")),
            ("`7` alone, as a part", Key::join(["7"])),
        ];
        let mut subjects: Vec<_> = keys
            .into_iter()
            .map(|(name, key)| self.named(name, "", key))
            .collect();
        // Names of policies that, followed by the key, could be confused with others.
        let longest = |last: &str| {
            let room = 127 - self.named("", "", Key::GLOBAL).policy.name().len();
            format!("{}{last}", "x".repeat(room))
        };
        let policies = [
            ("`c` under `:a:b`", ":a:b".to_owned(), "c"),
            ("`b:c` under `:a`", ":a".to_owned(), "b:c"),
            ("`a:b:c` under `:`", ":".to_owned(), "a:b:c"),
            ("`7` under a name with a blank", " ".to_owned(), "7"),
            ("`7` under a name in braces", "{x}".to_owned(), "7"),
            ("`7` under a name with a quote", "\"\\".to_owned(), "7"),
            ("`7` under the longest name", longest("a"), "7"),
            ("`7` under another longest name", longest("b"), "7"),
        ];
        for (name, policy, key) in policies {
            subjects.push(self.named(name, &policy, Key::from(key)));
        }
        debug_assert!(
            subjects
                .iter()
                .all(|subject| subject.policy != Policy::default())
        );
        subjects
    }
}

/// Checks of several asks in one call.
impl<R: Algorithm> Checker<'_, R> {
    pub(crate) async fn several_asks(&mut self) -> CheckResult {
        let rules = &self.suite.rules;
        for (n, rule) in rules.iter().enumerate() {
            self.begin(rule);
            // Equal to `rule` if there is only one.
            let other = &rules[(n + 1) % rules.len()];
            let [alice, bob, carol] = ["alice", "bob", "carol"].map(|name| self.subject(name));
            let of = |subject, units| TestAsk::new(subject, rule, units);
            // Different costs, to check the order of the answers.
            self.several(&[of(&alice, 1), of(&bob, 2)]).await?;
            self.several(&[TestAsk::new(&bob, rule, 1), TestAsk::new(&carol, other, 1)])
                .await?;

            self.exhaust(&bob, rule).await?;
            let limit = self.look(&carol, other).await?.limit().unwrap_or(1);
            for _ in 0..2 {
                self.several(&[of(&alice, 1), of(&bob, 1)]).await?;
                self.several(&[of(&bob, 1), of(&alice, 1)]).await?;
                self.several(&[of(&alice, 1), of(&bob, 1), TestAsk::new(&carol, other, 1)])
                    .await?;
                let beyond = limit.saturating_add(1);
                self.several(&[of(&alice, 1), TestAsk::new(&carol, other, beyond)])
                    .await?;
            }
            self.look_at(&[of(&bob, 1), TestAsk::new(&carol, other, 1), of(&alice, 1)])
                .await?;

            // One key under two policies, and one key twice.
            let elsewhere = self.named("alice elsewhere", " elsewhere", alice.key);
            self.several(&[of(&alice, 1), of(&elsewhere, 1)]).await?;
            let dave = self.subject("dave");
            self.several(&[of(&dave, 1), of(&dave, 1)]).await?;
            let left = self.look(&dave, rule).await?.remaining().unwrap_or(0);
            self.several(&[of(&dave, left.max(1)), of(&alice, 1), of(&dave, 1)])
                .await?;
            self.look_at(&[of(&dave, 1), of(&alice, 1), of(&elsewhere, 1)])
                .await?;
        }
        Ok(())
    }
}

/// Checks of resets.
impl<R: Algorithm> Checker<'_, R> {
    pub(crate) async fn resets(&mut self, rule: &R) -> CheckResult {
        let (alice, bob) = (self.subject("alice"), self.subject("bob"));
        let elsewhere = self.named("alice elsewhere", " elsewhere", alice.key);
        for subject in [&alice, &bob, &elsewhere] {
            self.exhaust(subject, rule).await?;
        }
        for _ in 0..2 {
            self.reset(&alice).await?;
            let first = self.acquire(&alice, rule, 1).await?;
            self.is_reset(&alice, rule, &first)?;
            self.exhaust(&alice, rule).await?;
        }
        self.look(&bob, rule).await?;
        self.look(&elsewhere, rule).await?;
        // A key that was never used.
        let nobody = self.subject("nobody");
        self.reset(&nobody).await?;
        self.acquire(&nobody, rule, 1).await.map(drop)
    }
}

/// The maximum number of changes.
const MAX_CHANGES: usize = 40;

/// Checks of changes of the rule.
impl<R: Algorithm> Checker<'_, R> {
    pub(crate) async fn change(&mut self) -> CheckResult {
        let rules = &self.suite.rules;
        if rules.len() < 2 {
            return Err(self.unchecked("there is only one rule; give the suite another one"));
        }
        // Adjacent rules first, then those further apart.
        let apart = (1..rules.len()).flat_map(|apart| (0..rules.len()).map(move |n| (n, apart)));
        for (n, apart) in apart.take(MAX_CHANGES) {
            let (old, new) = (&rules[n], &rules[(n + apart) % rules.len()]);
            self.begin(old);
            let (spent, calm) = (self.subject("spent"), self.subject("calm"));
            self.exhaust(&spent, old).await?;
            self.acquire(&calm, old, 1).await?;
            for subject in [&spent, &calm] {
                self.look(subject, new).await?;
                self.acquire(subject, new, 1).await?;
                self.look(subject, old).await?;
                self.acquire(subject, old, 1).await?;
                self.acquire(subject, new, 1).await?;
            }
        }
        Ok(())
    }
}

/// Checks of rules that keep tokens free for others.
impl<R: Algorithm> Checker<'_, R> {
    pub(crate) async fn reserves(&mut self) -> CheckResult {
        let limit = |rule: &R| rule.look(None, Timestamp::default()).limit();
        for keeping in &self.suite.rules {
            for other in &self.suite.rules {
                if keeping.is_same_bucket(other) && limit(keeping) < limit(other) {
                    self.begin(keeping);
                    self.count_kept(keeping, other).await?;
                    self.take_turns(keeping, other).await?;
                }
            }
        }
        Ok(())
    }

    /// Counts the calls that pass under a rule, and then those under another one that keeps less.
    async fn count_kept(&mut self, keeping: &R, other: &R) -> CheckResult {
        let alice = self.subject("alice");
        let Some(burst) = self.burst(&alice, keeping, 1).await? else {
            return Ok(());
        };
        let passed = self.count_admitted(&alice, keeping, &burst).await?;
        self.counted(&burst, passed, 0)?;
        let fresh = other.look(None, burst.at).remaining().unwrap_or(0);
        let kept = Burst {
            units: 1,
            calls: fresh.saturating_sub(burst.units * passed),
            left: Vec::new(),
            at: burst.at,
        };
        if kept.calls > MAX_CALLS {
            return Ok(());
        }
        let passed = self.count_admitted(&alice, other, &kept).await?;
        self.counted(&kept, passed, 0)
    }

    /// Calls both rules in turn, while the level is below what the first one keeps free, and above.
    async fn take_turns(&mut self, keeping: &R, other: &R) -> CheckResult {
        let bob = self.subject("bob");
        for _ in 0..2 {
            self.exhaust(&bob, keeping).await?;
            let asks = [TestAsk::new(&bob, other, 1), TestAsk::new(&bob, keeping, 1)];
            self.several(&asks).await?;
            let charge = self.acquire(&bob, other, 1).await?.charge();
            self.acquire(&bob, keeping, 1).await?;
            self.look(&bob, other).await?;
            if let Some(charge) = charge.filter(|_| !self.suite.leaves_out(Law::Settle)) {
                self.settle_one(&bob, other, charge, 0).await?;
                self.acquire(&bob, keeping, 1).await?;
            }
            self.exhaust(&bob, other).await?;
            let refused = self.acquire(&bob, keeping, 1).await?;
            let look = self.look(&bob, other).await?;
            for wait in [Some(look.more_after()), refused.retry_after()] {
                if let Some(wait) = wait.filter(|wait| self.moves_time() && self.can_wait(*wait)) {
                    self.pass(wait).await;
                }
                self.acquire(&bob, keeping, 1).await?;
                self.acquire(&bob, other, 1).await?;
            }
        }
        Ok(())
    }
}

/// The number of calls that exhaust a rule.
const EXHAUSTING_CALLS: u64 = 4;

/// Checks of rules of several kinds on one key, for example of two releases.
impl<R: Algorithm> Checker<'_, R> {
    pub(crate) async fn kinds(&mut self) -> CheckResult {
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
            let subject = self.subject("alice");
            if turn == 0 {
                self.exhaust_in_turn(&subject, &rules).await?;
            } else {
                for rule in &rules {
                    self.exhaust(&subject, rule).await?;
                }
            }
            for rule in rules.iter().rev() {
                self.acquire(&subject, rule, 1).await?;
            }
            self.reset_all(&subject, &rules).await?;
        }
        for (n, one) in rules.iter().enumerate().skip(1) {
            let pair = [*one, rules[n - 1]];
            self.begin(one);
            let subject = self.subject("alice");
            self.exhaust_in_turn(&subject, &pair).await?;
            self.acquire(&subject, one, 1).await?;
            self.reset_all(&subject, &pair).await?;
        }
        Ok(())
    }

    /// Calls the rules in turn until all of them are nearly exhausted.
    async fn exhaust_in_turn(&mut self, subject: &Subject, rules: &[&R]) -> CheckResult {
        let mut units = Vec::new();
        for rule in rules {
            let left = self.look(subject, rule).await?.remaining().unwrap_or(0);
            units.push(left / EXHAUSTING_CALLS + 1);
        }
        for _ in 0..=EXHAUSTING_CALLS {
            for (rule, units) in rules.iter().zip(&units) {
                self.acquire(subject, rule, *units).await?;
            }
        }
        Ok(())
    }

    /// Checks the first answer after the reset of an exhausted key. What calls hold stays held;
    /// with a lease it may come back with its renewal.
    fn is_reset(&self, subject: &Subject, rule: &R, first: &Decision) -> CheckResult {
        if rule.renewal().is_some() {
            return Ok(());
        }
        let holds = rule.look(None, Timestamp::default()).is_in_flight();
        if self.is_like_new(subject, rule, first) != holds {
            return Ok(());
        }
        Err(self.breach(if holds {
            format!("a reset gave back what calls hold under {rule:?}")
        } else {
            format!("a key that was reset is not like a new one under {rule:?}")
        }))
    }

    /// Checks that a reset clears the states of all kinds.
    async fn reset_all(&mut self, subject: &Subject, rules: &[&R]) -> CheckResult {
        self.reset(subject).await?;
        for rule in rules {
            let first = self.acquire(subject, rule, 1).await?;
            self.is_reset(subject, rule, &first)?;
        }
        Ok(())
    }
}
