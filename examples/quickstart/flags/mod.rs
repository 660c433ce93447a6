//! Parses the command line by hand. Using the crate needs nothing of this.

mod key;
mod store;

use std::{ffi::OsString, fmt::Display, net::SocketAddr, str::FromStr, time::Duration};

use tollgate::{
    AnyRule, Quota,
    key::AnyKey,
    respond::Headers,
    store::{LeaseConfig, SyncConfig},
};

pub(crate) use self::{
    key::example_header,
    store::{OnStoreError, StoreLocation},
};

pub(crate) const HELP: &str = r#"An axum server behind a rate limit.

Usage: cargo run --features axum --example quickstart -- [FLAG]...

  --listen ADDR    address and port, 0 picks one  [127.0.0.1:3000]
  --rule RULE      how much is allowed            [token-bucket 5/10s burst=5]
  --key KEY        to whom                        [peer-ip]
                     peer-ip               each client address
                     global                everybody together
                     "header NAME"         each value of a header; also bearer,
                                           "cookie NAME", host, path, method
                     "forwarded-for CIDR CIDR"
                                           each client that trusted proxies name
                     "forwarded CIDR"      … in Forwarded, not X-Forwarded-For
                     "A + B", "A or B"     both together, or the first
  --config FILE    limits and routes from a file of TOML, instead of --rule and
                   --key; it is followed while the server runs (built with the
                   feature `config`)
  --check FILE     shows the mistakes and warnings of such a file, for the
                   store that is named, and ends
  --headers SHAPE  which headers are sent         [draft]
                     draft, draft-07, draft-06, legacy, legacy-delta, none
  --store STORE    where it is remembered         [memory]
                     memory, or shared by all who name the same server:
                     redis://HOST:PORT      built with the feature `redis`; also
                                            redis-cluster://HOST,HOST and
                                            redis-sentinel://HOST,HOST/NAME,
                                            each rediss… with `redis-tls`
                     memcached://HOST:PORT  … with `memcached`; windows are
                                            counted, others compare and swap
  --on-store-error WAY
                   requests that it cannot decide [open]
                     open    pass
                     closed  are answered with 503
                     local   are decided here, under a share of the limit
                   where open or local is given, it starts also while the
                   store is gone, with a warning; else it says so and ends
  --nodes N        how many servers share the limit: the share of `local`
                   is an Nth of it                [1]
  --store-timeout TIME
                   how long the store may take    [100ms]
  --lease[=TIME]   units that a shared store grants ahead, for so long: most
                   requests are decided here, and never above the limit;
                   the burst pays for it  [a tenth of what refills the limit]
  --sync[=TIME]    requests are decided here, and pushed to a shared store
                   later, so often: the limit is exceeded by a bound
                   at most, and what exceeds it is repaid         [100ms]
  --overshoot PERCENT
                   that bound: a part of the limit, with --sync  [5%]
  --remember-refusals
                   a refused client is refused here until it may retry,
                   also while the store is gone
  --demo           sends itself requests, shows what happens, and ends
  --svg FILE       writes a picture of that, with --demo
  --help           shows this

Exit status: 0, 1 if it could not serve, the demo saw a broken promise, or the
file has mistakes, 2 for a wrong flag, 3 if the file has only warnings.
"#;

/// The command to run.
pub(crate) enum Command {
    Help,
    Serve(Args),
    Demo(Args),
    /// Check the file of `config`.
    Check(Args),
}

/// The settings of the server.
pub(crate) struct Args {
    pub(crate) listen: SocketAddr,
    pub(crate) rule: AnyRule,
    pub(crate) key: AnyKey,
    /// The file of `--config`, which stands for `rule` and `key`.
    pub(crate) config: Option<String>,
    pub(crate) headers: Headers,
    pub(crate) store: StoreLocation,
    pub(crate) on_store_error: OnStoreError,
    /// `true` for `open` and `local`: the program starts even if the store is unreachable.
    pub(crate) starts_without: bool,
    pub(crate) nodes: u64,
    pub(crate) store_timeout: Duration,
    pub(crate) lease: Option<LeaseConfig>,
    pub(crate) sync: Option<SyncConfig>,
    pub(crate) remember_refusals: bool,
    /// The file for the picture of the demo.
    pub(crate) svg: Option<String>,
}

impl Command {
    /// Parses the arguments after the program's name. Returns a sentence that says what is wrong
    /// with them.
    pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Self, String> {
        let (mut listen, mut rule, mut key, mut headers) = (None, None, None, None);
        let (mut store, mut on_store_error, mut nodes, mut store_timeout) =
            (None, None, None, None);
        let (mut demo, mut remember_refusals, mut lease) = (false, false, None);
        let (mut sync, mut overshoot) = (None, None);
        let (mut config, mut check, mut svg) = (None, None, None);
        let mut args = args.into_iter().peekable();
        while let Some(arg) = args.next() {
            let arg = text(arg)?;
            let (flag, value) = match arg.split_once('=') {
                Some((flag, value)) if flag.starts_with("--") => (flag, Some(value.to_owned())),
                _ => (arg.as_str(), None),
            };
            match (flag, &value) {
                ("--help" | "-h", None) => return Ok(Self::Help),
                ("--demo", None) => demo = true,
                ("--remember-refusals", None) => remember_refusals = true,
                ("--demo" | "--help" | "--remember-refusals", Some(_)) => {
                    return Err(format!("{flag} takes no value"));
                }
                ("--lease" | "--sync", _) => {
                    let is_value = |next: &OsString| !next.to_string_lossy().starts_with('-');
                    let value = match value {
                        Some(value) => Some(value),
                        None => args.next_if(is_value).map(text).transpose()?,
                    };
                    match flag {
                        "--lease" => set(&mut lease, flag, hold(value.as_deref())?)?,
                        _ => set(&mut sync, flag, period(value.as_deref())?)?,
                    }
                }
                (
                    "--listen" | "--rule" | "--key" | "--headers" | "--store" | "--on-store-error"
                    | "--nodes" | "--store-timeout" | "--overshoot" | "--config" | "--check"
                    | "--svg",
                    _,
                ) => {
                    let value = match value {
                        Some(value) => value,
                        None => text(args.next().ok_or_else(|| {
                            format!("{flag} needs a value after it; --help shows examples")
                        })?)?,
                    };
                    match flag {
                        "--listen" => set(&mut listen, flag, address(&value)?)?,
                        "--rule" => set(&mut rule, flag, parsed(flag, &value)?)?,
                        "--key" => set(&mut key, flag, parsed(flag, &value)?)?,
                        "--config" => set(&mut config, flag, value)?,
                        "--check" => set(&mut check, flag, value)?,
                        "--svg" => set(&mut svg, flag, value)?,
                        "--store" => set(&mut store, flag, parsed(flag, &value)?)?,
                        "--on-store-error" => {
                            set(&mut on_store_error, flag, parsed(flag, &value)?)?;
                        }
                        "--nodes" => set(&mut nodes, flag, count(&value)?)?,
                        "--overshoot" => set(&mut overshoot, flag, percent(&value)?)?,
                        "--store-timeout" => set(&mut store_timeout, flag, time(flag, &value)?)?,
                        _ => set(&mut headers, flag, parsed(flag, &value)?)?,
                    }
                }
                _ => {
                    return Err(format!(
                        "unknown flag `{arg}`: expected --listen, --rule, --key, --config, --check, --headers, --store, \
                         --on-store-error, --nodes, --store-timeout, --lease, --sync, --overshoot, --remember-refusals, \
                         --demo, --svg or --help"
                    ));
                }
            }
        }
        let is_check = check.is_some();
        if let (true, Some(flag)) = (
            config.is_some() || is_check,
            [
                ("--rule", rule.is_some()),
                ("--key", key.is_some()),
                ("--demo", demo),
                (
                    "--config and --check together",
                    config.is_some() && is_check,
                ),
            ]
            .iter()
            .find_map(|(flag, is_given)| is_given.then_some(flag)),
        ) {
            return Err(format!(
                "a file of limits does not go with {flag}: expected one of them; take one out"
            ));
        }
        if (config.is_some() || is_check) && !cfg!(feature = "config") {
            return Err(
                "this program was built without config: expected that feature for a file of limits; build it with \
                 `--features axum,config`"
                    .to_owned(),
            );
        }
        if svg.is_some() && !demo {
            return Err(
                "--svg draws the demo: expected --demo with it; add that, or take --svg out"
                    .to_owned(),
            );
        }
        // The demo is its own client, so any free port works.
        let listen = listen.unwrap_or(SocketAddr::from((
            [127, 0, 0, 1],
            if demo { 0 } else { 3000 },
        )));
        let args = Args {
            listen,
            rule: or_default(rule, "--rule", "token-bucket 5/10s burst=5")?,
            key: or_default(key, "--key", "peer-ip")?,
            config: config.or(check),
            headers: or_default(headers, "--headers", "draft")?,
            store: or_default(store, "--store", "memory")?,
            starts_without: matches!(
                on_store_error,
                Some(OnStoreError::Open | OnStoreError::Local)
            ),
            on_store_error: or_default(on_store_error, "--on-store-error", "open")?,
            nodes: nodes.unwrap_or(1),
            store_timeout: store_timeout.unwrap_or(Duration::from_millis(100)),
            lease,
            sync: synced(sync, overshoot, nodes)?,
            remember_refusals,
            svg,
        };
        for (flag, is_given) in [
            ("--lease", args.lease.is_some()),
            ("--sync", args.sync.is_some()),
        ] {
            if is_given && matches!(args.store, StoreLocation::Memory) {
                return Err(format!(
                    "{flag} needs a store that servers share, as in --store redis://127.0.0.1:6379: \
                     one in memory decides at once; name such a store, or take {flag} out"
                ));
            }
        }
        if args.lease.is_some() && args.sync.is_some() {
            return Err(
                "--lease never exceeds the limit and --sync does so by a bound: expected one of them; take one out"
                    .to_owned(),
            );
        }
        Ok(if demo {
            Self::Demo(args)
        } else if is_check {
            Self::Check(args)
        } else {
            Self::Serve(args)
        })
    }
}

fn text(arg: OsString) -> Result<String, String> {
    arg.into_string()
        .map_err(|arg| format!("the argument {arg:?} is not UTF-8: expected plain text"))
}

fn set<T>(slot: &mut Option<T>, flag: &str, value: T) -> Result<(), String> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(format!(
            "{flag} is given twice: expected it once; take one out"
        )),
    }
}

fn parsed<T: FromStr<Err: Display>>(flag: &str, value: &str) -> Result<T, String> {
    value
        .parse()
        .map_err(|error| format!("{flag} \"{value}\": {error}"))
}

fn or_default<T: FromStr<Err: Display>>(
    value: Option<T>,
    flag: &str,
    default: &str,
) -> Result<T, String> {
    value.map_or_else(|| parsed(flag, default), Ok)
}

fn address(value: &str) -> Result<SocketAddr, String> {
    value.parse().map_err(|_| {
        format!(
            "--listen \"{value}\": expected an address and a port, as in `127.0.0.1:3000` or \
             `[::1]:0`; host names are not looked up"
        )
    })
}

fn count(value: &str) -> Result<u64, String> {
    let count = value.parse().ok().filter(|count| *count > 0);
    count.ok_or_else(|| {
        format!(
            "--nodes \"{value}\": expected a whole number of servers from 1 on, as in --nodes 2"
        )
    })
}

/// Parses how long leases are held. Without a value, that depends on the rule.
fn hold(value: Option<&str>) -> Result<LeaseConfig, String> {
    let config = LeaseConfig::new();
    let Some(value) = value else {
        return Ok(config);
    };
    let hold = config.try_duration(time("--lease", value)?);
    hold.map_err(|error| format!("--lease \"{value}\": {error}"))
}

/// Parses how often usage is pushed to the store.
fn period(value: Option<&str>) -> Result<SyncConfig, String> {
    let config = SyncConfig::new();
    let Some(value) = value else {
        return Ok(config);
    };
    let period = config.try_period(time("--sync", value)?);
    period.map_err(|error| format!("--sync \"{value}\": {error}"))
}

/// Parses a part of the limit, as in `5%`.
fn percent(value: &str) -> Result<u64, String> {
    let number = value.strip_suffix('%').unwrap_or(value).parse().ok();
    let percent = number.filter(|percent| *percent <= 100);
    percent.ok_or_else(|| {
        format!("--overshoot \"{value}\": expected a whole percentage from 0 to 100, as in --overshoot 5%")
    })
}

/// Joins what `--sync`, `--overshoot` and `--nodes` say.
fn synced(
    sync: Option<SyncConfig>,
    overshoot: Option<u64>,
    nodes: Option<u64>,
) -> Result<Option<SyncConfig>, String> {
    let Some(mut config) = sync else {
        return match overshoot {
            None => Ok(None),
            Some(_) => Err(
                "--overshoot says how far --sync may exceed the limit: expected --sync, too; add it, or take --overshoot out"
                    .to_owned(),
            ),
        };
    };
    if let Some(percent) = overshoot {
        config = config.overshoot_percent(percent);
    }
    if let Some(nodes) = nodes {
        config = config.nodes(nodes);
    }
    Ok(Some(config))
}

/// Parses a time with the syntax of a quota's period.
fn time(flag: &str, value: &str) -> Result<Duration, String> {
    let quota = format!("1/{value}").parse::<Quota>();
    quota.map(|quota| quota.period()).map_err(|_| {
        format!("{flag} \"{value}\": expected a time above zero, as in `100ms` or `2s`")
    })
}
