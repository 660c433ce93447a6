//! Where the limit lives, and what happens when it is gone: `--store`, `--on-store-error`, and what goes with them.

use std::{convert::Infallible, fmt, str::FromStr, time::Duration};

use tollgate::{
    AnyRule, Cost, Error, Policy,
    key::Key,
    store::{self, Ask, BoxStore, CircuitBreaker, Local, Scalable, Store, StoreExt},
};

use crate::args::Args;

/// A store that the command line chose. Where the choice is made in code, neither the box nor any of this is
/// needed: `.store(Redis::<TokenBucket>::connect(url).await?.fail_open())`.
pub(crate) type AnyStore = BoxStore<AnyRule, Infallible>;
/// One that can fail.
type Remote = BoxStore<AnyRule, store::Error>;

/// How long a circuit breaker leaves a failing store alone: at first, and at most.
const PAUSES: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(1)];

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
    /// This process decides by itself, under its share of the limit.
    Local,
}

impl FromStr for Place {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        if text == "memory" {
            return Ok(Self::Memory);
        }
        let is_redis = [
            "redis://",
            "rediss://",
            "redis-cluster://",
            "redis-sentinel://",
        ]
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
            "local" => Ok(Self::Local),
            _ => Err(Error::new(format!(
                "`{text}` is no way to go on: expected `open`, `closed` or `local`"
            ))),
        }
    }
}

/// The store of the arguments; a sentence if it cannot be used.
pub(crate) async fn open(args: &Args) -> Result<AnyStore, String> {
    let told = |error: store::Error| {
        let source = std::error::Error::source(&error);
        let source = source.map_or_else(String::new, |source| format!(": {source}"));
        format!("--store {}: {error}{source}", args.store)
    };
    let remote: Remote = match &args.store {
        Place::Memory => return Ok(Local::new().boxed()),
        #[cfg(feature = "redis")]
        Place::Redis(url) => redis(url, args.store_timeout).await,
        #[cfg(not(feature = "redis"))]
        Place::Redis(_) => Err(store::Error::other("this program was built without Redis")),
    }
    .map_err(told)?;
    // A rule that this store cannot run is told now, not by every request.
    let policy = Policy::default();
    let ask = Ask::new(&policy, &args.rule, Key::shared("start"), Cost::ONE);
    remote.look(&[ask]).await.map_err(told)?;
    guard(remote, args)
}

/// What a store that can fail stands behind. What is written first lies inside.
fn guard(remote: Remote, args: &Args) -> Result<AnyStore, String> {
    let store = remote
        .timeout(args.store_timeout)
        .circuit_breaker(CircuitBreaker::new().open_for(PAUSES[0], PAUSES[1]));
    let store = if args.remember_refusals {
        store.remember_refusals().boxed()
    } else {
        store.boxed()
    };
    Ok(match args.on_store_error {
        OnStoreError::Open => store.fail_open().boxed(),
        OnStoreError::Closed => store.fail_closed().boxed(),
        OnStoreError::Local => {
            let share = args.rule.try_scaled(1, args.nodes);
            share.map_err(|error| {
                format!("--on-store-error local, --nodes {}: {error}", args.nodes)
            })?;
            store
                .fall_back_to(Local::new())
                .share(1, args.nodes)
                .boxed()
        }
    })
}

#[cfg(feature = "redis")]
async fn redis(url: &str, timeout: Duration) -> Result<Remote, store::Error> {
    // A connection is given up later than a request.
    let builder =
        store::Redis::<AnyRule>::builder(url).response_timeout(timeout + Duration::from_secs(1));
    Ok(builder.connect().await?.boxed())
}
