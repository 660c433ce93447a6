//! Errors of the client library as errors of the store, with what to do about them.

use redis::{ErrorKind, RedisError};

use crate::store::StoreError;

/// Returns `true` if the connection must be replaced: it is broken, or its server is silent or not
/// a master.
pub(super) fn ends_connection(error: &RedisError) -> bool {
    error.is_timeout()
        || error.is_io_error()
        || error.is_connection_dropped()
        || error.is_unrecoverable_error()
        || has_code(error, &["READONLY", "MASTERDOWN"])
}

/// Returns `true` if the server answered with one of these codes.
fn has_code(error: &RedisError, codes: &[&str]) -> bool {
    // Up to Redis 6, an error inside a script is an error of the script, with the cause in its
    // text.
    let is_in_text = |detail: &str| {
        codes
            .iter()
            .any(|code| detail.contains(&format!("-{code} ")))
    };
    error.code().is_some_and(|code| codes.contains(&code)) || error.detail().is_some_and(is_in_text)
}

/// Parses the text of a failed write in a script: `@user_script: 12: -OOM command not …` up to
/// Redis 6, and `OOM command not …` since.
pub(super) fn write_error(text: &str) -> RedisError {
    let reply = text.split_once(": -").map_or(text, |(_, reply)| reply);
    let (code, detail) = reply.split_once(' ').unwrap_or((reply, ""));
    redis::make_extension_error(code.to_owned(), Some(detail.to_owned()))
}

/// Returns `true` if the server is full or read-only, so that it takes no writes now.
pub(super) fn takes_no_writes(error: &RedisError) -> bool {
    has_code(error, &["OOM", "READONLY", "MISCONF", "NOREPLICAS"])
}

/// Returns `true` if the server rejects the login, or requires one.
pub(super) fn is_auth_error(error: &RedisError) -> bool {
    error.kind() == ErrorKind::AuthenticationFailed
        || matches!(error.code(), Some("NOAUTH" | "WRONGPASS"))
        // Errors of a cluster's nodes arrive as text.
        || error.detail().is_some_and(|detail| detail.contains("AuthenticationFailed"))
}

/// Returns `true` if the server cannot serve any call now, and `false` if the problem is this
/// command.
fn is_outage(error: &RedisError) -> bool {
    if is_auth_error(error) {
        return false;
    }
    ends_connection(error)
        || error.is_connection_refusal()
        || error.is_cluster_error()
        || matches!(error.code(), Some("LOADING" | "BUSY"))
        || error.kind() == ErrorKind::MasterNameNotFoundBySentinel
}

/// Converts an error of the client library, and adds what to do about it.
pub(super) fn store_error(error: RedisError) -> StoreError {
    let advice = appended_advice(&error);
    advised(error, advice)
}

/// Converts the error of a program's first write. The program has read before, so only writes are
/// refused.
pub(super) fn unwritten(error: RedisError) -> StoreError {
    let advice = appended_advice(&error);
    StoreError::unwritten(cause(error, advice))
}

/// Converts an error of connecting to `expected`, a description such as `Redis at 127.0.0.1:6379`.
pub(super) fn connect_error(error: RedisError, expected: &str) -> StoreError {
    let is_unreachable =
        error.is_io_error() || error.is_connection_refusal() || error.is_cluster_error();
    if advice(&error).is_some() || !is_unreachable {
        return store_error(error);
    }
    let advice =
        format!(": expected {expected}; check that it runs there and is reachable from this host");
    advised(error, Some(advice))
}

fn advised(error: RedisError, advice: Option<String>) -> StoreError {
    if error.is_timeout() {
        return StoreError::timeout();
    }
    let is_outage = is_outage(&error);
    let cause = cause(error, advice);
    if is_outage {
        StoreError::unavailable(cause)
    } else {
        StoreError::other(cause)
    }
}

fn cause(error: RedisError, advice: Option<String>) -> Box<dyn std::error::Error + Send + Sync> {
    match advice {
        Some(advice) => format!("{error}{advice}").into(),
        None => error.into(),
    }
}

fn appended_advice(error: &RedisError) -> Option<String> {
    advice(error).map(|advice| format!("; {advice}"))
}

/// Returns what to do, for errors whose text does not say it.
fn advice(error: &RedisError) -> Option<&'static str> {
    match error.code() {
        _ if is_auth_error(error) => Some(
            "put the server's user and password into the URL, as in `redis://user:password@host`",
        ),
        Some("NOPERM") => Some(PERMISSIONS),
        // A missing permission inside a script.
        _ if error
            .detail()
            .is_some_and(|detail| detail.contains("The user executing")) =>
        {
            Some(PERMISSIONS)
        }
        Some("MOVED") => Some("the server is a node of a cluster: connect with `redis-cluster://`"),
        _ => {
            // Errors of `rustls` reach this side only as text.
            let text = error.to_string();
            let found = TLS_ADVICE.iter().find(|(part, _)| text.contains(part));
            found.map(|(_, advice)| *advice)
        }
    }
}

const PERMISSIONS: &str = "the user needs `+info +script|load +evalsha +eval +time +get +getrange +mget +pttl +set +setrange +pexpire +pexpireat +del` \
     on keys that begin with the prefix, and in a cluster `+cluster|slots +asking`";
const AUTHORITY: &str = "set the certificate of the authority that signed the server's with `RedisBuilder::root_certificate`";

const TLS_ADVICE: [(&str, &str); 7] = [
    ("UnknownIssuer", AUTHORITY),
    // Another authority with the same name.
    ("BadSignature", AUTHORITY),
    (
        "certificate expired",
        "renew the server's certificate, or correct the clock of this host",
    ),
    (
        "certificate not valid for name",
        "the server's certificate must name the host in the URL, or the host that sentinels or the cluster report: \
         see `Redis::builder`",
    ),
    (
        "received fatal alert",
        "the server rejects this client: set a certificate that it trusts with `RedisBuilder::client_certificate`",
    ),
    (
        "InvalidContentType",
        "that port of the server has no TLS: use its `tls-port`, or connect without TLS",
    ),
    (
        "without tls-rustls-insecure",
        "remove `#insecure` from the URL, and set the server's certificate with `RedisBuilder::root_certificate`",
    ),
];
