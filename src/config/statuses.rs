//! Statuses of responses as text: `status 401 403 5xx`.

use std::{fmt, str::FromStr};

use http::Response;

use crate::{charging::ChargeIf, error::Error};

/// A condition on the status of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Statuses {
    /// Set if all statuses but those of the list are selected.
    is_inverted: bool,
    /// Sorted, without those that others contain.
    list: Vec<StatusRange>,
}

/// A status, or a class of a hundred.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum StatusRange {
    Class(u16),
    One(u16),
}

impl StatusRange {
    fn contains(self, status: u16) -> bool {
        match self {
            Self::Class(class) => status / 100 == class,
            Self::One(one) => status == one,
        }
    }
}

impl<B> ChargeIf<Response<B>> for Statuses {
    fn is_charged(&self, response: &Response<B>) -> bool {
        let status = response.status().as_u16();
        self.list.iter().any(|range| range.contains(status)) != self.is_inverted
    }
}

impl FromStr for Statuses {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = || {
            Error::new(format!(
                "`{}` is no condition on a status: expected `status` and a list of statuses or classes, or `not` before it, as in \
                 `status 401`, `status 401 403 5xx` or `not status 2xx`",
                text.escape_debug()
            ))
        };
        let mut words = text.split_whitespace().peekable();
        let is_inverted = words.next_if_eq(&"not").is_some();
        if words.next() != Some("status") {
            return Err(wrong());
        }
        let mut list = words
            .map(|word| parse(word).ok_or_else(wrong))
            .collect::<Result<Vec<_>, _>>()?;
        if list.is_empty() {
            return Err(wrong());
        }
        list.sort_unstable();
        list.dedup();
        let classes: Vec<_> = list.clone();
        list.retain(|range| match range {
            StatusRange::Class(_) => true,
            StatusRange::One(one) => !classes.contains(&StatusRange::Class(one / 100)),
        });
        Ok(Self { is_inverted, list })
    }
}

fn parse(word: &str) -> Option<StatusRange> {
    if let Some(class) = word.strip_suffix("xx") {
        let class = class.parse().ok().filter(|class| (1..=5).contains(class));
        return class.map(StatusRange::Class);
    }
    let status = word
        .parse()
        .ok()
        .filter(|status| (100..=599).contains(status));
    status.map(StatusRange::One)
}

impl fmt::Display for Statuses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_inverted {
            "not status"
        } else {
            "status"
        })?;
        self.list.iter().try_for_each(|range| match range {
            StatusRange::Class(class) => write!(f, " {class}xx"),
            StatusRange::One(status) => write!(f, " {status}"),
        })
    }
}
