//! Where the limit lives: `--store` and `--on-store-error`.

use std::{convert::Infallible, fmt, str::FromStr};

use tollgate::{
    AnyRule, Error,
    store::{BoxStore, Local, StoreExt},
};

use crate::args::Args;

/// A store that the command line chose. Where the choice is made in code, neither the box nor any of this is
/// needed: `.store(Redis::<TokenBucket>::connect(url).await?.fail_open())`.
pub(crate) type AnyStore = BoxStore<AnyRule, Infallible>;

#[derive(Clone)]
pub(crate) enum Place {
    Memory,
    /// The URL of a server.
    #[cfg_attr(not(feature = "redis"), allow(dead_code, reason = "never made"))]
    Redis(String),
}

/// What happens to a request that the store cannot decide.
#[derive(Clone, Copy)]
pub(crate) enum OnStoreError {
    /// It passes.
    Open,
    /// It is answered with 503.
    Closed,
}

impl FromStr for Place {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        if text == "memory" {
            return Ok(Self::Memory);
        }
        let is_redis = ["redis://", "redis-cluster://", "redis-sentinel://"]
            .iter()
            .any(|scheme| text.starts_with(scheme));
        if !is_redis {
            return Err(Error::new(format!(
                "`{text}` is no store: expected `memory` or a URL as in `redis://127.0.0.1:6379`"
            )));
        }
        if cfg!(feature = "redis") {
            Ok(Self::Redis(text.to_owned()))
        } else {
            Err(Error::new(
                "this program was built without Redis; build it with `--features axum,tokio,redis`",
            ))
        }
    }
}

/// Without the user and the password that a URL may hold.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory"),
            Self::Redis(url) => {
                let (scheme, rest) = url.split_once("://").unwrap_or_default();
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
            _ => Err(Error::new(format!(
                "`{text}` is no way to go on: expected `open` or `closed`"
            ))),
        }
    }
}

/// The store of the arguments; a sentence if it cannot be used.
pub(crate) async fn open(args: &Args) -> Result<AnyStore, String> {
    match &args.store {
        Place::Memory => Ok(Local::new().boxed()),
        #[cfg(feature = "redis")]
        Place::Redis(url) => {
            let store = redis(url, &args.rule)
                .await
                .map_err(|error| format!("--store {}: {error}", args.store))?;
            Ok(match args.on_store_error {
                OnStoreError::Open => store.fail_open().boxed(),
                OnStoreError::Closed => store.fail_closed().boxed(),
            })
        }
        #[cfg(not(feature = "redis"))]
        Place::Redis(_) => Err("this program was built without Redis".to_owned()),
    }
}

#[cfg(feature = "redis")]
async fn redis(url: &str, rule: &AnyRule) -> Result<tollgate::store::Redis<AnyRule>, String> {
    use std::error::Error as _;
    use tollgate::{
        Cost, Policy,
        key::Key,
        store::{Ask, Redis, Store},
    };

    let told = |error: tollgate::store::Error| match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    };
    let store = Redis::connect(url).await.map_err(told)?;
    // A rule that this store cannot run is told now, not by every request.
    let policy = Policy::default();
    let ask = Ask::new(&policy, rule, Key::shared("start"), Cost::ONE);
    store.look(&[ask]).await.map_err(told)?;
    Ok(store)
}
