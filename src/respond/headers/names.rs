//! The names of all header fields that this crate writes.

use http::{HeaderName, header::RETRY_AFTER};

pub(super) const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
pub(super) const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

const RATELIMIT_LIMIT: HeaderName = HeaderName::from_static("ratelimit-limit");
const RATELIMIT_REMAINING: HeaderName = HeaderName::from_static("ratelimit-remaining");
const RATELIMIT_RESET: HeaderName = HeaderName::from_static("ratelimit-reset");

const X_RATELIMIT_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_RATELIMIT_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RATELIMIT_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// The fields of draft-06: the limit, the remaining units and the reset.
pub(super) const DRAFT06: [HeaderName; 3] = [RATELIMIT_LIMIT, RATELIMIT_REMAINING, RATELIMIT_RESET];
/// The same fields as `X-RateLimit-*`.
pub(super) const X_RATELIMIT: [HeaderName; 3] =
    [X_RATELIMIT_LIMIT, X_RATELIMIT_REMAINING, X_RATELIMIT_RESET];

pub(in crate::respond) const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
pub(in crate::respond) const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
pub(in crate::respond) const GRPC_STATUS_DETAILS: HeaderName =
    HeaderName::from_static("grpc-status-details-bin");
pub(in crate::respond) const GRPC_RETRY_PUSHBACK: HeaderName =
    HeaderName::from_static("grpc-retry-pushback-ms");

/// The header names to list in `Access-Control-Expose-Headers` (WHATWG Fetch, CORS protocol).
///
/// Browsers hide other fields from scripts of other origins. The list contains every field that this crate writes under
/// any setting. Naming a field that is never sent does no harm.
/// With tower-http: `CorsLayer::new().expose_headers(EXPOSED_HEADERS)`.
///
/// # Examples
///
/// ```
/// use tollgate::respond::EXPOSED_HEADERS;
///
/// assert!(EXPOSED_HEADERS.iter().any(|name| name == "ratelimit"));
/// ```
#[doc(alias = "cors")]
pub const EXPOSED_HEADERS: [HeaderName; 13] = [
    RETRY_AFTER,
    RATELIMIT,
    RATELIMIT_POLICY,
    RATELIMIT_LIMIT,
    RATELIMIT_REMAINING,
    RATELIMIT_RESET,
    X_RATELIMIT_LIMIT,
    X_RATELIMIT_REMAINING,
    X_RATELIMIT_RESET,
    GRPC_STATUS,
    GRPC_MESSAGE,
    GRPC_STATUS_DETAILS,
    GRPC_RETRY_PUSHBACK,
];

/// [`EXPOSED_HEADERS`] as the value of `Access-Control-Expose-Headers`.
pub(in crate::respond) const EXPOSED_HEADERS_LIST: &str = "retry-after, ratelimit, ratelimit-policy, ratelimit-limit, \
     ratelimit-remaining, ratelimit-reset, x-ratelimit-limit, x-ratelimit-remaining, x-ratelimit-reset, \
     grpc-status, grpc-message, grpc-status-details-bin, grpc-retry-pushback-ms";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_that_of_the_array() {
        let headers = EXPOSED_HEADERS;
        let names: Vec<_> = headers.iter().map(HeaderName::as_str).collect();
        assert_eq!(EXPOSED_HEADERS_LIST, names.join(", "));
    }
}
