//! The format of the rate limit fields, as the application chooses it.

use std::{fmt, str::FromStr};

use crate::error::Error;

/// The format of the rate limit fields in responses.
///
/// | | text | fields |
/// |---|---|---|
/// | `Draft` | `draft` | `RateLimit: "api";r=50;t=30` and `RateLimit-Policy: "api";q=100;w=60` |
/// | `Draft07` | `draft-07` | `RateLimit: limit=100, remaining=50, reset=5` and `RateLimit-Policy: 100;w=60` |
/// | `Draft06` | `draft-06` | `RateLimit-Limit`, `RateLimit-Remaining`, `RateLimit-Reset` |
/// | `Legacy` | `legacy` | `X-RateLimit-Limit`, `X-RateLimit-Remaining`, `X-RateLimit-Reset` as Unix seconds |
/// | `LegacyDelta` | `legacy-delta` | as `Legacy`, with the reset as seconds from now |
/// | `None` | `none` | none; `Retry-After` stays |
///
/// `Draft` reports every policy, the nearest to exhaustion first. Stacked layers add theirs; if two of them have the same
/// name by mistake, the one that leaves less is reported. [`UpstreamFields`](crate::respond::UpstreamFields) has the rules for fields of an upstream. The other formats report the policy that is nearest to
/// exhaustion (draft-07 reports all of them in `RateLimit-Policy`), and their reset counts down to a full quota.
///
/// # Examples
///
/// ```
/// use tollgate::respond::{Headers, Http};
///
/// let respond = Http::new().headers(Headers::Legacy);
/// # let _ = respond;
///
/// // As a setting in a configuration file.
/// assert_eq!("draft-07".parse(), Ok(Headers::Draft07));
/// assert_eq!(Headers::default().to_string(), "draft");
/// assert!("x-ratelimit".parse::<Headers>().is_err());
/// ```
#[doc(alias = "x-ratelimit")]
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
    /// `X-RateLimit-*` with the reset in Unix seconds, as GitHub sends them.
    Legacy,
    /// `X-RateLimit-*` with the reset in seconds from now.
    LegacyDelta,
    /// No rate limit fields.
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
                "unknown format of headers `{text}`: expected draft, draft-07, draft-06, legacy, \
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
