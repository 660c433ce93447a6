//! The rule in force, as it applies to each call.

use std::borrow::Cow;

use tollgate::{AnyRule, algorithm::Algorithm, key::Key};

/// A rule, and the variants of it for each color of a call.
pub(super) struct Rules {
    plain: AnyRule,
    given: [AnyRule; 3],
    /// The number of the rule, from 1 on.
    number: u64,
}

/// The variant of a rule for one key, if the rule depends on the key.
#[derive(Default)]
pub(super) struct Own {
    rule: Option<Box<AnyRule>>,
    /// The number of the rule that this variant belongs to, or 0 before the first.
    number: u64,
}

impl Rules {
    pub(super) fn new(rule: AnyRule) -> Self {
        Self::numbered(rule, 1)
    }

    fn numbered(plain: AnyRule, number: u64) -> Self {
        Self {
            given: [0, 1, 2].map(|class| plain.clone().given(class)),
            plain,
            number,
        }
    }

    pub(super) fn change(&mut self, rule: AnyRule) {
        *self = Self::numbered(rule, self.number + 1);
    }

    pub(super) fn changes(&self) -> u64 {
        self.number - 1
    }

    /// Returns the rule for a call. `own` caches the key's variant until the rule changes.
    #[inline]
    pub(super) fn met_by<'a>(
        &'a self,
        key: &[u8],
        own: &'a mut Own,
        class: Option<u8>,
    ) -> Cow<'a, AnyRule> {
        if own.number != self.number {
            own.number = self.number;
            own.rule = self.plain.for_key(&|| digest(key)).map(Box::new);
        }
        match (&own.rule, class) {
            (None, None) => Cow::Borrowed(&self.plain),
            (None, Some(class)) => Cow::Borrowed(&self.given[usize::from(class.min(2))]),
            (Some(rule), None) => Cow::Borrowed(rule),
            (Some(rule), Some(class)) => Cow::Owned(AnyRule::clone(rule).given(class)),
        }
    }
}

/// Returns the digest by which a rule depends on the key, the same as in stores.
fn digest(key: &[u8]) -> u64 {
    match std::str::from_utf8(key) {
        Ok(text) => Key::from(text),
        Err(_) => Key::bytes(key),
    }
    .digest()
}
