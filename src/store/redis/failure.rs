//! What an error of the client means, and what to do.

use redis::{ErrorKind, RedisError};

use crate::store::Error;

/// Whether the connection is of no use any more: it is broken, its server silent, or no master.
pub(super) fn is_over(error: &RedisError) -> bool {
    error.is_timeout()
        || error.is_io_error()
        || error.is_connection_dropped()
        || error.is_unrecoverable_error()
        || matches!(error.code(), Some("READONLY" | "MASTERDOWN"))
        // What a program meets is an error of the program up to Redis 6, which tells the cause.
        || error.detail().is_some_and(|detail| detail.contains("-READONLY "))
}

/// The error of a write that a program met, from its text: `@user_script: 12: -OOM command not …` up to Redis 6, and
/// `OOM command not …` since.
pub(super) fn of_write(text: &str) -> RedisError {
    let told = text.split_once(": -").map_or(text, |(_, told)| told);
    let (code, detail) = told.split_once(' ').unwrap_or((told, ""));
    redis::make_extension_error(code.to_owned(), Some(detail.to_owned()))
}

/// Whether the server does not know this client.
pub(super) fn is_login(error: &RedisError) -> bool {
    error.kind() == ErrorKind::AuthenticationFailed
        || matches!(error.code(), Some("NOAUTH" | "WRONGPASS"))
        // What a cluster's nodes said comes as text.
        || error.detail().is_some_and(|detail| detail.contains("AuthenticationFailed"))
}

/// Whether it is the server that cannot do anything now, rather than this command that it cannot do.
fn is_outage(error: &RedisError) -> bool {
    if is_login(error) {
        return false;
    }
    is_over(error)
        || error.is_connection_refusal()
        || error.is_cluster_error()
        || matches!(error.code(), Some("LOADING" | "BUSY"))
        || error.kind() == ErrorKind::MasterNameNotFoundBySentinel
}

/// What a caller is told: whether it is the server or the call, and what to do.
pub(super) fn error(error: RedisError) -> Error {
    let advice = advice(&error).map(|advice| format!("; {advice}"));
    advised(error, advice)
}

/// The same where no connection could be made to a place.
pub(super) fn connecting(error: RedisError, place: &str) -> Error {
    let nobody = error.is_io_error() || error.is_connection_refusal() || error.is_cluster_error();
    if advice(&error).is_some() || !nobody {
        return self::error(error);
    }
    let advice =
        format!(": expected {place}; see that it runs there, and can be reached from here");
    advised(error, Some(advice))
}

fn advised(error: RedisError, advice: Option<String>) -> Error {
    if error.is_timeout() {
        return Error::timeout();
    }
    let is_outage = is_outage(&error);
    let source: Box<dyn std::error::Error + Send + Sync> = match advice {
        Some(advice) => format!("{error}{advice}").into(),
        None => error.into(),
    };
    if is_outage {
        Error::unavailable(source)
    } else {
        Error::other(source)
    }
}

/// What to do where the other side's words do not tell.
fn advice(error: &RedisError) -> Option<&'static str> {
    match error.code() {
        _ if is_login(error) => Some(
            "put the user and the password of the server into the URL, as in `redis://user:password@host`",
        ),
        Some("NOPERM") => Some(MISSING),
        // So a program is told.
        _ if error
            .detail()
            .is_some_and(|detail| detail.contains("The user executing")) =>
        {
            Some(MISSING)
        }
        Some("MOVED") => Some("the server is a node of a cluster: connect by `redis-cluster://`"),
        _ => {
            // Those of `rustls` come through the client as text alone.
            let told = error.to_string();
            let known = TLS_ADVICE.iter().find(|(part, _)| told.contains(part));
            known.map(|(_, advice)| *advice)
        }
    }
}

const MISSING: &str = "the user needs `+info +script|load +evalsha +eval +time +get +mget +pttl +set +setrange +pexpire +pexpireat +del` \
     on keys that begin with the prefix, and in a cluster `+cluster|slots +asking`";
const AUTHORITY: &str = "give the certificate of the authority that vouches for the server to `RedisBuilder::root_certificate`";

const TLS_ADVICE: [(&str, &str); 7] = [
    ("UnknownIssuer", AUTHORITY),
    // Another authority of the same name.
    ("BadSignature", AUTHORITY),
    (
        "certificate expired",
        "renew the server's certificate, or see that the clock of this host is right",
    ),
    (
        "certificate not valid for name",
        "the server's certificate must name the host in the URL, or the one that sentinels or a cluster tell: \
         see `Redis::builder`",
    ),
    (
        "received fatal alert",
        "the server does not take this client: give a certificate that it trusts to `RedisBuilder::client_certificate`",
    ),
    (
        "InvalidContentType",
        "the server speaks no TLS at that port: name its `tls-port`, or connect without TLS",
    ),
    (
        "without tls-rustls-insecure",
        "take `#insecure` out of the URL, and give the server's certificate to `RedisBuilder::root_certificate`",
    ),
];
