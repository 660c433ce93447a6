//! Which fields tell a client how its limits stand: the setting.

use std::{fmt, str::FromStr};

use crate::error::Error;

/// The shape of the fields that tell a client how its limits stand.
///
/// | | text | fields |
/// |---|---|---|
/// | `Draft` | `draft` | `RateLimit: "api";r=50;t=30` and `RateLimit-Policy: "api";q=100;w=60` |
/// | `Draft07` | `draft-07` | `RateLimit: limit=100, remaining=50, reset=5` and `RateLimit-Policy: 100;w=60` |
/// | `Draft06` | `draft-06` | `RateLimit-Limit`, `RateLimit-Remaining`, `RateLimit-Reset` |
/// | `Legacy` | `legacy` | `X-RateLimit-Limit`, `X-RateLimit-Remaining`, `X-RateLimit-Reset` as Unix seconds |
/// | `LegacyDelta` | `legacy-delta` | the same with the reset as seconds from now |
/// | `None` | `none` | none; `Retry-After` stays |
///
/// `Draft` tells every policy, the nearest to exhaustion first; stacked layers add theirs. Of stacked layers that have one
/// name by mistake, one entry is told: that of the layer which leaves less. The others tell
/// the nearest policy (draft-07 all of them in `RateLimit-Policy`), whose reset counts down to full.
///
/// ```
/// use tollgate::respond::Headers;
///
/// assert_eq!("draft-07".parse(), Ok(Headers::Draft07));
/// assert_eq!(Headers::default().to_string(), "draft");
/// assert!("x-ratelimit".parse::<Headers>().is_err());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Headers {
    /// draft-ietf-httpapi-ratelimit-headers-08 to -11: the default.
    #[default]
    Draft,
    /// draft-ietf-httpapi-ratelimit-headers-07.
    Draft07,
    /// draft-ietf-httpapi-ratelimit-headers-06 and earlier ones.
    Draft06,
    /// The common `X-RateLimit-*` with the reset as Unix seconds, as GitHub sends them.
    Legacy,
    /// The common `X-RateLimit-*` with the reset as seconds from now.
    LegacyDelta,
    /// None.
    None,
}

const NAMES: [(&str, Headers); 6] = [
    ("draft", Headers::Draft),
    ("draft-07", Headers::Draft07),
    ("draft-06", Headers::Draft06),
    ("legacy", Headers::Legacy),
    ("legacy-delta", Headers::LegacyDelta),
    ("none", Headers::None),
];

impl FromStr for Headers {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let known = NAMES.iter().find(|(name, _)| *name == text);
        known.map(|(_, headers)| *headers).ok_or_else(|| {
            Error::new(format!(
                "unknown shape of headers `{text}`: expected draft, draft-07, draft-06, legacy, \
                 legacy-delta or none; write `draft` if no client reads them yet"
            ))
            .at_column(1)
        })
    }
}

impl fmt::Display for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = NAMES.iter().find(|(_, headers)| headers == self);
        f.write_str(named.map_or("draft", |(name, _)| name))
    }
}
