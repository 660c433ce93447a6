//! Where the limit lives, and what happens when it is gone: `--store`, `--on-store-error`, and what goes with them.

use std::{convert::Infallible, fmt, str::FromStr, time::Duration};

use tollgate::{
    AnyRule, Cost, Error, Policy,
    algorithm::Algorithm,
    key::Key,
    store::{self, Ask, BoxStore, Check, CircuitBreakerConfig, Local, Scalable, Store, StoreExt},
};
#[cfg(feature = "memcached")]
use tollgate::{
    CountedRule,
    store::{CountersBuilder, MemcachedConnection, OptimisticBuilder},
};

use crate::args::Args;

/// A store that the command line chose. Where the choice is made in code, neither the box nor any of this is
/// needed: `.store(Redis::<TokenBucket>::connect(url).await?.fail_open())`.
pub(crate) type AnyStore<Rule> = BoxStore<Rule, Infallible>;
/// One that can fail.
type Remote<Rule> = BoxStore<Rule, store::Error>;

/// A store and the rule that it runs: counters cannot run any rule, so theirs has another type.
pub(crate) enum Opened {
    Any(AnyRule, AnyStore<AnyRule>),
    #[cfg(feature = "memcached")]
    Counted(CountedRule, AnyStore<CountedRule>),
}

/// How long a circuit breaker leaves a failing store alone: at first, and at most.
const PAUSES: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(1)];

#[derive(Clone)]
pub(crate) enum Place {
    Memory,
    /// The URL of a server.
    #[cfg(feature = "redis")]
    Redis(String),
    /// The URL of a server.
    #[cfg(feature = "memcached")]
    Memcached(String),
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

/// Without the user and the password that a URL may hold.
impl fmt::Display for Place {
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

/// The store of the arguments; a sentence if it cannot be used.
pub(crate) async fn open(args: &Args) -> Result<Opened, String> {
    match &args.store {
        Place::Memory => Ok(Opened::Any(args.rule.clone(), Local::new().boxed())),
        #[cfg(feature = "redis")]
        Place::Redis(url) => redis(url, args).await,
        #[cfg(feature = "memcached")]
        Place::Memcached(url) => memcached(url, args).await,
    }
}

#[cfg(feature = "redis")]
async fn redis(url: &str, args: &Args) -> Result<Opened, String> {
    let builder = store::Redis::<AnyRule>::builder(url).response_timeout(connection_timeout(args));
    let now = builder.clone().connect().await;
    let (redis, is_there) = now_or_later(now, || builder.connect_lazy(), args)?;
    any(redis.boxed(), is_there, args).await
}

/// Windows are counted there; all other rules compare and swap.
#[cfg(feature = "memcached")]
async fn memcached(url: &str, args: &Args) -> Result<Opened, String> {
    let builder = MemcachedConnection::builder(url).response_timeout(connection_timeout(args));
    let now = builder.clone().connect().await;
    let (connection, is_there) = now_or_later(now, || builder.connect_lazy(), args)?;
    match CountedRule::try_from(args.rule.clone()) {
        Ok(rule) => {
            let counters = CountersBuilder::new(connection).build().boxed();
            let share = share(args).and_then(CountedRule::try_from);
            let store = guard(counters, is_there, &rule, share, args).await?;
            Ok(Opened::Counted(rule, store))
        }
        Err(_) => {
            // Who loses every race is told so before the request's time is up, or the server would look silent.
            let deadline = args.store_timeout * 4 / 5;
            let swaps = OptimisticBuilder::new(connection).deadline(deadline);
            any(swaps.build().boxed(), is_there, args).await
        }
    }
}

/// A connection is given up later than a request.
fn connection_timeout(args: &Args) -> Duration {
    args.store_timeout + Duration::from_secs(1)
}

/// What is connected, or will be with the first request where the server is gone and requests can do without it; and which of
/// both. Where code connects, it is `connect_lazy` alone.
fn now_or_later<T>(
    now: Result<T, store::Error>,
    later: impl FnOnce() -> Result<T, store::Error>,
    args: &Args,
) -> Result<(T, bool), String> {
    let error = match now {
        Ok(there) => return Ok((there, true)),
        Err(error) => error,
    };
    let is_gone = error.is_unavailable() || error.is_timeout();
    let sentence = told(args, &error);
    if !(is_gone && args.starts_without) {
        return Err(sentence);
    }
    eprintln!(
        "quickstart: {sentence}; starting without it, as --on-store-error says, until it is there"
    );
    let later = later().map_err(|error| told(args, &error))?;
    Ok((later, false))
}

fn told(args: &Args, error: &store::Error) -> String {
    let advice = if error.is_unavailable() && !args.starts_without {
        "; or name another one, or start without it by --on-store-error open or local"
    } else {
        ""
    };
    format!("--store {}: {error}{advice}", args.store)
}

/// What a server may admit on its own.
fn share(args: &Args) -> Result<AnyRule, Error> {
    args.rule.try_scaled(1, args.nodes)
}

/// Behind a store that runs every rule.
async fn any(remote: Remote<AnyRule>, is_there: bool, args: &Args) -> Result<Opened, String> {
    let store = guard(remote, is_there, &args.rule, share(args), args).await?;
    Ok(Opened::Any(args.rule.clone(), store))
}

/// What a store that can fail stands behind. What is written first lies inside.
async fn guard<Rule>(
    remote: Remote<Rule>,
    is_there: bool,
    rule: &Rule,
    share: Result<Rule, Error>,
    args: &Args,
) -> Result<AnyStore<Rule>, String>
where
    Rule: Algorithm<State: Send + Sync> + PartialEq + Send + Sync + 'static,
{
    // A rule that this store cannot run is told now, not by every request.
    let policy = Policy::default();
    let ask = Ask::new(&policy, rule, Key::shared("start"), Cost::ONE);
    let answer = remote.look(&[ask]);
    if is_there || matches!(answer, Check::Ready(_)) {
        answer.await.map_err(|error| told(args, &error))?;
    }
    let store = remote
        .timeout(args.store_timeout)
        .circuit_breaker(CircuitBreakerConfig::new().open_for(PAUSES[0], PAUSES[1]));
    let store = if args.remember_refusals {
        store.remember_refusals().boxed()
    } else {
        store.boxed()
    };
    Ok(match args.on_store_error {
        OnStoreError::Open => store.fail_open().boxed(),
        OnStoreError::Closed => store.fail_closed().boxed(),
        OnStoreError::Local => {
            let share = share.map_err(|error| {
                let nodes = args.nodes;
                format!("--on-store-error local, --nodes {nodes}: {error}; here, take `open` or `closed`")
            })?;
            // In code, where the rule is a token bucket: `.share(1, nodes)`.
            let local = store.fall_back_to(Local::new());
            local.rule(move |_: &Rule| Some(share.clone())).boxed()
        }
    })
}
