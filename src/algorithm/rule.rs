//! Constructors from a quota, and the text of rules.

use std::{fmt, time::Duration};

use crate::{
    error::Error,
    quota::{Quota, fmt_duration, parse_duration, parse_number},
};

/// Builders by an amount for each of the common periods, and the conversion from a quota.
///
/// Behind `try`, a rule whose `try_new` can refuse a quota.
macro_rules! of_quota {
    ($Rule:ident, $second:literal, $minute:literal, $hour:literal, $day:literal) => {
        of_quota! {
            @builders $Rule [const] "When the amount is 0 or above 2⁴⁰.",
            per_second $second, per_minute $minute, per_hour $hour, per_day $day
        }

        impl From<$crate::quota::Quota> for $Rule {
            fn from(quota: $crate::quota::Quota) -> Self {
                Self::new(quota)
            }
        }
    };
    (bucket $Rule:ident, $second:literal, $minute:literal, $hour:literal, $day:literal) => {
        of_quota! {
            @builders $Rule [const] "When the amount is 0, or [`try_new`](Self::try_new) fails.",
            per_second $second, per_minute $minute, per_hour $hour, per_day $day
        }
        of_quota! { @try_from $Rule }
    };
    (try $Rule:ident, $second:literal, $minute:literal, $hour:literal, $day:literal) => {
        of_quota! {
            @builders $Rule [] "When the amount is 0 or above 2⁴⁰, or [`try_new`](Self::try_new) fails.",
            per_second $second, per_minute $minute, per_hour $hour, per_day $day
        }
        of_quota! { @try_from $Rule }
    };
    (@try_from $Rule:ident) => {
        impl TryFrom<$crate::quota::Quota> for $Rule {
            type Error = $crate::error::Error;

            fn try_from(quota: $crate::quota::Quota) -> Result<Self, Self::Error> {
                Self::try_new(quota)
            }
        }
    };
    (@builders $Rule:ident $const:tt $panics:literal, $($builder:ident $summary:literal),+) => {
        impl $Rule {
            $(of_quota! { @builder $const $builder $summary $panics })+
        }
    };
    (@builder [$($const:ident)?] $builder:ident $summary:literal $panics:literal) => {
        #[doc = $summary]
        ///
        /// # Panics
        ///
        #[doc = $panics]
        #[track_caller]
        pub $($const)? fn $builder(amount: u64) -> Self {
            Self::new($crate::quota::Quota::$builder(amount))
        }
    };
}

pub(super) use of_quota;

/// Implements `Display`, `Debug` and `FromStr` for a rule.
///
/// A text is the rule's name and what `Rule::of_words` reads and `Rule::fmt_settings` writes behind
/// it.
macro_rules! text {
    ($(#[$documentation:meta])* $Rule:ident) => {
        impl std::fmt::Display for $Rule {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{} ", Self::NAME)?;
                self.fmt_settings(f)
            }
        }

        impl std::fmt::Debug for $Rule {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!(stringify!($Rule), "({})"), self)
            }
        }

        impl std::str::FromStr for $Rule {
            type Err = $crate::error::Error;

            $(#[$documentation])*
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                let mut words = $crate::algorithm::rule::RuleWords::of(text);
                words.name(Self::NAME)?;
                let rule = Self::of_words(&mut words)?;
                words.end()?;
                Ok(rule)
            }
        }
    };
}

pub(super) use text;

/// Writes a setting in nanoseconds, as in ` keep=1d`, if it is set.
pub(super) fn fmt_time(
    f: &mut fmt::Formatter<'_>,
    name: &str,
    nanos: Option<impl Into<u64>>,
) -> fmt::Result {
    let Some(nanos) = nanos else {
        return Ok(());
    };
    write!(f, " {name}=")?;
    fmt_duration(nanos.into(), f)
}

/// The words of one rule that are not read yet.
pub(super) struct RuleWords<'a> {
    text: &'a str,
    words: std::iter::Peekable<std::vec::IntoIter<RuleWord<'a>>>,
}

/// A word and the byte at which it begins.
#[derive(Clone, Copy)]
struct RuleWord<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> RuleWords<'a> {
    pub(super) fn of(text: &'a str) -> Self {
        let words: Vec<_> = text
            .split_ascii_whitespace()
            .map(|word| RuleWord {
                text: word,
                at: word.as_ptr().addr() - text.as_ptr().addr(),
            })
            .collect();
        Self {
            text,
            words: words.into_iter().peekable(),
        }
    }

    /// Returns the first word, which is an algorithm's name, and its column.
    pub(super) fn first(text: &'a str) -> Option<(&'a str, usize)> {
        let word = Self::of(text).words.next()?;
        Some((word.text, word.at + 1))
    }

    /// Returns the whole text.
    pub(super) fn text(&self) -> &'a str {
        self.text
    }

    fn next(&mut self, expected: &str) -> Result<RuleWord<'a>, Error> {
        self.words.next().ok_or_else(|| {
            Error::new(format!(
                "the rule `{}` ends too early: expected {expected}",
                self.text.trim()
            ))
            .at_column(self.text.trim_end().len() + 1)
        })
    }

    /// Returns the column of the next word, or of the end of the text.
    pub(super) fn column(&mut self) -> usize {
        let end = self.text.trim_end().len();
        self.words.peek().map_or(end, |word| word.at) + 1
    }

    pub(super) fn name(&mut self, name: &str) -> Result<(), Error> {
        let word = self.next(&format!("`{name}`"))?;
        if word.text == name {
            return Ok(());
        }
        Err(Error::new(format!(
            "`{}` where `{name}` was expected; begin the rule with `{name}`",
            word.text
        ))
        .at_column(word.at + 1))
    }

    pub(super) fn quota(&mut self) -> Result<Quota, Error> {
        let word = self.next("a quota, as in `100/1m`")?;
        word.text
            .parse()
            .map_err(|error: Error| error.shifted(word.at))
    }

    pub(super) fn number(&mut self, expected: &str) -> Result<u64, Error> {
        let word = self.next(expected)?;
        parse_number(word.text).ok_or_else(|| {
            Error::new(format!("`{}` where {expected} was expected", word.text))
                .at_column(word.at + 1)
        })
    }

    /// Builds a rule from its quota, and adds the quota's column to an error.
    pub(super) fn bucket<T>(
        &mut self,
        build: impl FnOnce(Quota) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let column = self.column();
        build(self.quota()?).map_err(|error| error.at_column(column))
    }

    /// Checks that no word follows.
    pub(super) fn end(&mut self) -> Result<(), Error> {
        self.words.next().map_or(Ok(()), |word| {
            Err(Error::new(format!(
                "`{}` after the end of the rule: expected nothing more; take it out",
                word.text
            ))
            .at_column(word.at + 1))
        })
    }

    /// Takes the remaining words as settings `name=value` in any order, each at most once.
    pub(super) fn settings<const N: usize>(
        &mut self,
        names: &[&'static str; N],
    ) -> Result<[Option<Setting<'a>>; N], Error> {
        let mut settings = [None; N];
        for word in self.words.by_ref() {
            let (name, value) = word.text.split_once('=').unwrap_or((word.text, ""));
            let Some(index) = names.iter().position(|known| *known == name) else {
                return Err(Error::new(format!(
                    "unknown setting `{name}`: expected one of `{}=…`; correct it, or take it out",
                    names.join("=…`, `")
                ))
                .at_column(word.at + 1));
            };
            let at = word.at + word.text.len().min(name.len() + 1);
            if settings[index]
                .replace(Setting {
                    name: names[index],
                    value,
                    at,
                })
                .is_some()
            {
                return Err(Error::new(format!(
                    "`{name}` is set twice: expected it once; take one out"
                ))
                .at_column(word.at + 1));
            }
        }
        Ok(settings)
    }
}

/// The value of a setting.
#[derive(Clone, Copy)]
pub(super) struct Setting<'a> {
    name: &'static str,
    value: &'a str,
    at: usize,
}

impl Setting<'_> {
    pub(super) fn error(&self, expected: &str) -> Error {
        Error::new(format!(
            "`{}` is no value for `{}`: expected {expected}",
            self.value, self.name
        ))
        .at_column(self.at + 1)
    }

    /// Returns the value as it is written.
    pub(super) fn word(&self) -> &str {
        self.value
    }

    /// Checks that the setting has no value.
    pub(super) fn flag(&self) -> Result<(), Error> {
        if self.value.is_empty() {
            return Ok(());
        }
        Err(self.error(&format!("none; write `{}` alone", self.name)))
    }

    /// Parses a number with at most three decimals, in thousandths.
    pub(super) fn thousandths(&self) -> Result<u64, Error> {
        let (whole, part) = self.value.split_once('.').unwrap_or((self.value, "0"));
        let digits = part.len() as u32;
        let thousandths = || {
            let part = parse_number(part).filter(|_| digits <= 3)?;
            parse_number(whole)?
                .checked_mul(1000)?
                .checked_add(part * 10_u64.pow(3 - digits))
        };
        thousandths().ok_or_else(|| {
            self.error(&format!(
                "a number with at most three decimals, as in `{}=3` or `{0}=2.5`",
                self.name
            ))
        })
    }

    pub(super) fn number(&self) -> Result<u64, Error> {
        parse_number(self.value)
            .ok_or_else(|| self.error(&format!("a whole number, as in `{}=150`", self.name)))
    }

    pub(super) fn quota(&self) -> Result<Quota, Error> {
        self.value
            .parse()
            .map_err(|error: Error| error.shifted(self.at))
    }

    pub(super) fn duration(&self) -> Result<Duration, Error> {
        parse_duration(self.value)
            .map(Duration::from_nanos)
            .map_err(|_| {
                self.error(&format!(
                    "a duration in ns, us, ms, s, m, h or d, as in `{}=10s`",
                    self.name
                ))
            })
    }

    /// Passes a value of this setting to `build`, and adds the setting's column to an error.
    pub(super) fn apply<V, T>(
        &self,
        value: V,
        build: impl FnOnce(V) -> Result<T, Error>,
    ) -> Result<T, Error> {
        build(value).map_err(|error| error.at_column(self.at + 1))
    }
}

/// Sets the value of a setting, if it is there, and adds its column to an error.
pub(super) fn set<'a, R, V>(
    rule: R,
    setting: Option<Setting<'a>>,
    read: impl FnOnce(&Setting<'a>) -> Result<V, Error>,
    build: impl FnOnce(R, V) -> Result<R, Error>,
) -> Result<R, Error> {
    match setting {
        None => Ok(rule),
        Some(word) => word.apply(read(&word)?, |value| build(rule, value)),
    }
}
