//! The store of the limit, and the decision for requests that it cannot decide: `--store` and
//! `--on-store-error`.

use std::{fmt, str::FromStr};

use tollgate::Error;

#[derive(Clone)]
pub(crate) enum StoreLocation {
    Memory,
    /// The URL of a server.
    #[cfg(feature = "redis")]
    Redis(String),
    /// The URL of a server.
    #[cfg(feature = "memcached")]
    Memcached(String),
}

/// The decision for a request that the store cannot decide.
#[derive(Clone, Copy)]
pub(crate) enum OnStoreError {
    /// Admitted.
    Open,
    /// Answered with 503.
    Closed,
    /// Decided by this process, under its share of the limit.
    Local,
}

impl FromStr for StoreLocation {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let scheme = text.split_once("://").map(|(scheme, _)| scheme);
        let feature = match scheme {
            None if text == "memory" => return Ok(Self::Memory),
            Some(
                "redis" | "rediss" | "redis-cluster" | "rediss-cluster" | "redis-sentinel"
                | "rediss-sentinel",
            ) => "redis",
            Some("memcached") => "memcached",
            _ => {
                return Err(Error::new(format!(
                    "`{text}` is no store: expected `memory` or a URL as in `redis://127.0.0.1:6379` \
                     (`rediss://`, `redis-cluster://`, `redis-sentinel://`) or `memcached://127.0.0.1:11211`"
                )));
            }
        };
        match feature {
            #[cfg(feature = "redis")]
            "redis" => Ok(Self::Redis(text.to_owned())),
            #[cfg(feature = "memcached")]
            "memcached" => Ok(Self::Memcached(text.to_owned())),
            feature => Err(Error::new(format!(
                "this program was built without {feature}; build it with `--features axum,{feature}`"
            ))),
        }
    }
}

/// Omits the user and the password of a URL.
impl fmt::Display for StoreLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let url = match self {
            Self::Memory => "memory",
            #[cfg(feature = "redis")]
            Self::Redis(url) => url,
            #[cfg(feature = "memcached")]
            Self::Memcached(url) => url,
        };
        match url.split_once("://") {
            None => f.write_str(url),
            Some((scheme, rest)) => {
                let hosts = rest.rsplit_once('@').map_or(rest, |(_, hosts)| hosts);
                write!(f, "{scheme}://{hosts}")
            }
        }
    }
}

impl FromStr for OnStoreError {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "open" => Ok(Self::Open),
            "closed" => Ok(Self::Closed),
            "local" => Ok(Self::Local),
            _ => Err(Error::new(format!(
                "`{text}` is no way to go on: expected `open`, `closed` or `local`"
            ))),
        }
    }
}
