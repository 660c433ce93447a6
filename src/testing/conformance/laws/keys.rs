//! Checks of similar keys, and of floods of keys.

use std::{fmt::Debug, net::IpAddr};

use super::super::{
    checker::{CheckResult, Checker},
    subject::Subject,
};
use crate::{
    algorithm::Algorithm,
    key::Key,
    policy::{Policy, Unit},
};

/// The number of keys in a flood.
const FLOOD: u64 = 256;

impl<R: Algorithm + Debug> Checker<'_, R> {
    pub(in super::super) async fn keys(&mut self) -> CheckResult {
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
