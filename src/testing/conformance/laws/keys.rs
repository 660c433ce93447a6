//! Keys that could be taken for one another, and floods of them.

use std::{fmt::Debug, net::IpAddr};

use super::super::{
    bench::{Bench, Kept},
    place::Place,
};
use crate::{
    algorithm::Algorithm,
    key::Key,
    policy::{Policy, Unit},
    store::Store,
};

/// As many keys come in a flood.
const FLOOD: u64 = 256;

impl<R, S> Bench<'_, R, S>
where
    R: Algorithm + Debug,
    S: Store<R, Error: Debug>,
{
    pub(in super::super) async fn keys(&mut self) -> Kept {
        for (n, rule) in self.suite.rules.iter().enumerate() {
            self.begin(rule);
            let hot = self.place("hot");
            self.exhaust(&hot, rule).await?;
            let places = self.likely_to_meet();
            for place in &places {
                let first = self.acquire(place, rule, 1).await?;
                if !self.begins_afresh(place, rule, &first) {
                    return Err(self.breach(format!("{place} is charged for others")));
                }
            }
            for place in places.iter().rev() {
                self.look(place, rule).await?;
            }
            self.one_name(rule).await?;
            if n == 0 {
                self.flood(&hot, rule).await?;
            }
        }
        Ok(())
    }

    /// The name alone is a policy's part of the key.
    async fn one_name(&mut self, rule: &R) -> Kept {
        let text = self.place("under one name");
        let bytes = Place {
            policy: text.policy.clone().with_unit(Unit::ContentBytes),
            ..text.clone()
        };
        self.exhaust(&text, rule).await?;
        self.acquire(&bytes, rule, 1).await.map(drop)
    }

    /// New keys without end, which leave those alone that are known.
    async fn flood(&mut self, hot: &Place, rule: &R) -> Kept {
        let calm = self.place("calm");
        self.acquire(&calm, rule, 1).await?;
        for _ in 0..FLOOD {
            let one = self.place("one of many");
            self.acquire(&one, rule, 1).await?;
        }
        self.look(&calm, rule).await?;
        self.acquire(hot, rule, 1).await?;
        // The same hot key without end.
        for _ in 0..FLOOD {
            self.acquire(hot, rule, 1).await?;
        }
        self.look(&calm, rule).await.map(drop)
    }

    fn likely_to_meet(&mut self) -> Vec<Place> {
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
        let mut places: Vec<_> = keys
            .into_iter()
            .map(|(name, key)| self.named(name, "", key))
            .collect();
        // A policy's name ends where the client's begins, wherever that is.
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
            places.push(self.named(name, &policy, Key::from(key)));
        }
        debug_assert!(places.iter().all(|place| place.policy != Policy::default()));
        places
    }
}
