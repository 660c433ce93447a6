//! Answers over gRPC.

use std::time::Duration;

use http::{
    HeaderName, HeaderValue, Method, Request, Response, StatusCode,
    header::{ACCESS_CONTROL_EXPOSE_HEADERS, CONTENT_TYPE},
};

use super::{
    Respond,
    headers::{Fields, Headers},
    number,
    refusal::{Cause, Refusal},
    reuse,
    settings::{Settings, setters},
    status_details,
};
use crate::outcome::Outcome;

pub(super) const STATUS: HeaderName = HeaderName::from_static("grpc-status");
pub(super) const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
pub(super) const DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");
pub(super) const PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

/// Names all of [`EXPOSED_HEADERS`](super::EXPOSED_HEADERS).
const EXPOSED: &str = "retry-after, ratelimit, ratelimit-policy, ratelimit-limit, \
     ratelimit-remaining, ratelimit-reset, x-ratelimit-limit, x-ratelimit-remaining, x-ratelimit-reset, \
     grpc-status, grpc-message, grpc-status-details-bin, grpc-retry-pushback-ms";

/// Answers every request as gRPC does. Needs a response body that is `Default`, as tonic's.
///
/// A bare 429 becomes `UNAVAILABLE` in most clients, who retry that at once. So a refusal is
/// HTTP 200 with the status in the header fields (Trailers-Only, gRPC over HTTP/2):
///
/// | | `grpc-status` | |
/// |---|---|---|
/// | a limit was reached | 8 `RESOURCE_EXHAUSTED` | `RetryInfo` and `QuotaFailure` in `grpc-status-details-bin` |
/// | the store could not tell | 14 `UNAVAILABLE` | `RetryInfo`, where it knows |
/// | no key | 3 `INVALID_ARGUMENT`, 16 `UNAUTHENTICATED` for 401, 7 `PERMISSION_DENIED` for 403, 13 `INTERNAL` for 5xx | |
///
/// `grpc-retry-pushback-ms` (gRFC A6) tells clients when to retry, and -1 that they
/// should not. The fields of [`Headers`] stand beside it.
///
/// # Long waits
///
/// A wait is told in full or not at all: an obedient client that was told less would come back to a refusal.
///
/// | | longest | a longer wait |
/// |---|---|---|
/// | `grpc-retry-pushback-ms` | 2³¹ − 1 ms, about 24.8 days | has no such field: a client with a retry policy for this status follows its own back-off |
/// | `RetryInfo` | 315,576,000,000 s, 10,000 years | is not told |
///
/// So behind a limit whose waits can pass 24.8 days, read `RetryInfo`.
///
/// The answer carries `Cache-Control: no-store`, as every refusal does.
///
/// [`Http`](super::Http) does the same for POST requests whose content type is gRPC.
///
/// ```
/// use tollgate::respond::{Grpc, Headers};
///
/// let respond = Grpc::new().headers(Headers::None);
/// # let _ = respond;
/// ```
#[derive(Clone, Debug, Default)]
pub struct Grpc {
    settings: Settings,
}

impl Grpc {
    /// Answers as gRPC, whatever the request's method and content type.
    pub fn new() -> Self {
        Self::default()
    }

    setters!();
}

#[diagnostic::do_not_recommend]
impl<BIn, BOut: Default, E> Respond<Request<BIn>, Response<BOut>, E> for Grpc {
    type Mark = Fields;

    #[inline]
    fn wants_outcome(&self) -> bool {
        self.settings.wants_outcome()
    }

    fn admit(&self, req: &mut Request<BIn>, outcome: Outcome) -> Fields {
        self.settings.admit(req.extensions_mut(), outcome)
    }

    fn annotate(mark: Fields, res: &mut Response<BOut>) {
        mark.write(res.headers_mut());
    }

    fn refuse(&self, mut req: Request<BIn>, refusal: Refusal) -> Result<Response<BOut>, E> {
        let content_type = spoken_by(&req).unwrap_or(ContentType::Grpc);
        let (mut answer, outer) = reuse::empty_answer(&mut req);
        write(&self.settings, &refusal, content_type, &mut answer);
        let (mut parts, ()) = answer.into_parts();
        reuse::finish(&mut parts, outer, refusal);
        Ok(Response::from_parts(parts, BOut::default()))
    }
}

/// The content type of an answer.
pub(super) enum ContentType {
    Grpc,
    /// gRPC-Web, in the variant of the request.
    Web(HeaderValue),
}

/// Returns how to answer a request that speaks gRPC: a POST with one of its content types (gRPC over HTTP/2, Requests).
///
/// Any other method is plain HTTP, whatever the client claims its body to be: a status of 200 would tell caches and
/// browsers that a refused GET succeeded.
#[inline]
pub(super) fn spoken_by<B>(req: &Request<B>) -> Option<ContentType> {
    if req.method() != Method::POST {
        return None;
    }
    content_type_of(req.headers().get(CONTENT_TYPE)?)
}

/// How to answer a request of this content type; `None` if it does not speak gRPC.
fn content_type_of(value: &HeaderValue) -> Option<ContentType> {
    const GRPC: &[u8] = b"application/grpc";
    let (start, rest) = value.as_bytes().split_at_checked(GRPC.len())?;
    if !start.eq_ignore_ascii_case(GRPC) {
        return None;
    }
    if matches!(rest, [] | [b'+' | b';', ..]) {
        return Some(ContentType::Grpc);
    }
    let (web, rest) = rest.split_at_checked(b"-web".len())?;
    let is_web = web.eq_ignore_ascii_case(b"-web") && matches!(rest, [] | [b'+' | b';' | b'-', ..]);
    is_web.then(|| ContentType::Web(value.clone()))
}

/// Writes a refusal: all of it, since it has no body.
pub(super) fn write(
    settings: &Settings,
    refusal: &Refusal,
    content_type: ContentType,
    answer: &mut Response<()>,
) {
    *answer.status_mut() = StatusCode::OK;
    let headers = answer.headers_mut();
    let content_type = match content_type {
        ContentType::Grpc => HeaderValue::from_static("application/grpc"),
        ContentType::Web(echo) => {
            headers.insert(
                ACCESS_CONTROL_EXPOSE_HEADERS,
                HeaderValue::from_static(EXPOSED),
            );
            echo
        }
    };
    headers.insert(CONTENT_TYPE, content_type);

    let code = code_of(refusal);
    let message = refusal.to_string();
    let wait = settings.retry_after(refusal);
    let pushback = match wait {
        Some(wait) => milliseconds(wait).and_then(number::value),
        None if refusal.is_forever() => Some(HeaderValue::from_static("-1")),
        None => None,
    };
    let details = match refusal.cause() {
        // How the other limits stand is no reason for this answer.
        Cause::Unsupported => None,
        _ => status_details::header(code, &message, wait, refusal.outcome()),
    };
    for (name, value) in [
        (STATUS, number::value(code.into())),
        (MESSAGE, percent_encoded(&message)),
        (PUSHBACK, pushback),
        (DETAILS, details),
    ] {
        if let Some(value) = value {
            headers.insert(name, value);
        }
    }
    if matches!(refusal.cause(), Cause::Limit) {
        settings.write_fields(refusal.outcome(), headers);
    }
}

/// The code (`google.rpc.Code`) of a refusal.
fn code_of(refusal: &Refusal) -> u32 {
    match refusal.cause() {
        Cause::Limit => 8,
        Cause::Undecided => 14,
        Cause::Unsupported => 13,
        Cause::MissingKey(missing) => match missing.status() {
            StatusCode::UNAUTHORIZED => 16,
            StatusCode::FORBIDDEN => 7,
            status if status.is_server_error() => 13,
            _ => 3,
        },
    }
}

/// Returns the wait in milliseconds, rounded up, at least 1; `None` if the field cannot hold it.
///
/// The field is a signed 32-bit number. Clients read a larger one differently: some as "do not retry", some as it is.
fn milliseconds(wait: Duration) -> Option<u64> {
    let millis = wait.as_nanos().div_ceil(1_000_000).max(1);
    i32::try_from(millis).ok()?.try_into().ok()
}

/// A message as `grpc-message` has it: %x20 to %x7E but `%` stand for themselves (gRPC over HTTP/2, Responses).
fn percent_encoded(message: &str) -> Option<HeaderValue> {
    let mut buffer = Vec::with_capacity(message.len());
    for &byte in message.as_bytes() {
        match byte {
            b'%' | ..0x20 | 0x7f.. => {
                const HEX: &[u8; 16] = b"0123456789ABCDEF";
                let (high, low) = (usize::from(byte >> 4), usize::from(byte & 15));
                buffer.extend_from_slice(&[b'%', HEX[high], HEX[low]]);
            }
            _ => buffer.push(byte),
        }
    }
    HeaderValue::try_from(buffer).ok()
}
