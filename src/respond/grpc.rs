//! The responder for gRPC, with its codes, fields and status details.

use std::time::Duration;

use http::{
    HeaderValue, Method, Request, Response, StatusCode,
    header::{ACCESS_CONTROL_EXPOSE_HEADERS, CONTENT_TYPE},
    response::Parts,
};

use super::{
    RefuseLate, Respond,
    headers::{
        EXPOSED_LIST, Fields, GRPC_MESSAGE, GRPC_RETRY_PUSHBACK, GRPC_STATUS, GRPC_STATUS_DETAILS,
        Headers, UpstreamFields, value,
    },
    refusal::{Cause, Refusal},
    settings::{self, OversizedCode, SharedSettings, admissions, setters},
};
use crate::{outcome::Outcome, permit::Permit};

/// Answers every request as gRPC. Needs a response body that is `Default`, as tonic's is.
///
/// Most gRPC clients read a plain 429 as `UNAVAILABLE` and retry at once. So a refusal is
/// HTTP 200 with the status in the header fields (Trailers-Only, gRPC over HTTP/2):
///
/// | | `grpc-status` | |
/// |---|---|---|
/// | a limit was reached | 8 `RESOURCE_EXHAUSTED` | `RetryInfo`, if the wait is known, and `QuotaFailure` in `grpc-status-details-bin` |
/// | the call [can never pass](Refusal::is_oversized) | [3](Self::oversized_code) `INVALID_ARGUMENT` | `QuotaFailure`; `grpc-retry-pushback-ms: -1` |
/// | the store could not decide | 14 `UNAVAILABLE` | `RetryInfo`, if the wait is known |
/// | the store [does not support](crate::store::StoreError::unsupported) the call | 13 `INTERNAL` | |
/// | no key | 3 `INVALID_ARGUMENT`, 16 `UNAUTHENTICATED` for 401, 7 `PERMISSION_DENIED` for 403, 13 `INTERNAL` for 5xx | |
///
/// `grpc-retry-pushback-ms` (gRFC A6) contains the wait before a retry, or -1 if the client should
/// not retry. It is omitted if no wait is known. The fields of [`Headers`] and
/// `Cache-Control: no-store` are sent too.
///
/// [`Http`](super::Http) answers POST requests with a content type of gRPC in the same way.
///
/// # Long waits
///
/// A wait that a field cannot hold is omitted. A shorter one would make clients retry too early.
///
/// | | longest wait | longer waits |
/// |---|---|---|
/// | `grpc-retry-pushback-ms` | 2³¹ − 1 ms, about 24.8 days | the field is omitted: a client with a retry policy for this status uses its own back-off |
/// | `RetryInfo` | 315,576,000,000 s, 10,000 years | `RetryInfo` is omitted |
///
/// So if waits can exceed 24.8 days, clients should read `RetryInfo`.
///
/// # Examples
///
/// ```
/// use tollgate::respond::{Grpc, Headers};
///
/// let respond = Grpc::new().headers(Headers::None);
/// # let _ = respond;
/// ```
#[doc(alias = "RESOURCE_EXHAUSTED")]
#[derive(Clone, Debug, Default)]
pub struct Grpc {
    settings: SharedSettings,
}

impl Grpc {
    /// Creates a responder that answers every request as gRPC, whatever its method and content
    /// type.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the status code of a gRPC response if it is among the header fields (gRPC over
    /// HTTP/2, Trailers-Only).
    ///
    /// The header fields have the errors of unary calls, and those of streams before their first
    /// message. A successful call, and a stream that fails later, has its status in the trailers
    /// after the body. The function returns `None` for these, and for responses that are not gRPC.
    ///
    /// ```
    /// use http::Response;
    /// use tollgate::{Limit, TokenBucket, respond::Grpc};
    ///
    /// // Charges calls that failed with `UNAUTHENTICATED`.
    /// let limit = Limit::new(TokenBucket::per_hour(3))
    ///     .charge_if(|response: &Response<()>| Grpc::code(response) == Some(16));
    ///
    /// let failed = Response::builder().header("grpc-status", "16").body(()).unwrap();
    /// assert_eq!(Grpc::code(&failed), Some(16));
    /// # let _ = limit;
    /// ```
    pub fn code<B>(response: &Response<B>) -> Option<u32> {
        let value = response.headers().get(GRPC_STATUS)?;
        value.to_str().ok()?.parse().ok()
    }

    setters!();
}

#[diagnostic::do_not_recommend]
impl<BIn, BOut: Default + 'static, E> Respond<Request<BIn>, Response<BOut>, E> for Grpc {
    admissions!(BIn, BOut);

    fn refuse(&self, mut req: Request<BIn>, mut refusal: Refusal) -> Result<Response<BOut>, E> {
        let content_type = content_type(&req).unwrap_or(ContentType::Grpc);
        let (mut parts, outer) = settings::empty_parts(&mut req);
        write(&self.settings, &refusal, content_type, &mut parts);
        settings::finish(&mut parts, outer, &mut refusal);
        Ok(Response::from_parts(parts, BOut::default()))
    }
}

#[diagnostic::do_not_recommend]
impl<B: Default, E> RefuseLate<Response<B>, E> for Grpc {
    fn refuse_late(&self, res: Response<B>, mut refusal: Refusal) -> Result<Response<B>, E> {
        let content_type = type_of_response(&res).unwrap_or(ContentType::Grpc);
        let (mut parts, ()) = Response::new(()).into_parts();
        write(&self.settings, &refusal, content_type, &mut parts);
        settings::finish(&mut parts, None, &mut refusal);
        Ok(Response::from_parts(parts, B::default()))
    }
}

/// The content type of a response.
pub(super) enum ContentType {
    Grpc,
    /// gRPC-Web, in the variant of the request.
    Web(HeaderValue),
}

/// Returns the content type for the response to a gRPC request: a POST with one of gRPC's content
/// types (gRPC over HTTP/2, Requests).
///
/// Any other method is plain HTTP, whatever its content type: caches and browsers would read a
/// status of 200 as the success of a refused GET.
#[inline]
pub(super) fn content_type<B>(req: &Request<B>) -> Option<ContentType> {
    if req.method() != Method::POST {
        return None;
    }
    response_type(req.headers().get(CONTENT_TYPE)?)
}

/// Returns the content type of a gRPC response.
pub(super) fn type_of_response<B>(res: &Response<B>) -> Option<ContentType> {
    response_type(res.headers().get(CONTENT_TYPE)?)
}

/// Returns the content type for the response to a request of this content type; `None` if that is
/// not gRPC.
fn response_type(value: &HeaderValue) -> Option<ContentType> {
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

/// Writes a refusal, which has no body.
pub(super) fn write(
    settings: &SharedSettings,
    refusal: &Refusal,
    content_type: ContentType,
    parts: &mut Parts,
) {
    parts.status = StatusCode::OK;
    let headers = &mut parts.headers;
    let content_type = match content_type {
        ContentType::Grpc => HeaderValue::from_static("application/grpc"),
        ContentType::Web(echo) => {
            headers.insert(
                ACCESS_CONTROL_EXPOSE_HEADERS,
                HeaderValue::from_static(EXPOSED_LIST),
            );
            echo
        }
    };
    headers.insert(CONTENT_TYPE, content_type);

    let code = code_of(settings, refusal);
    let message = refusal.to_string();
    let wait = settings.retry_after(refusal);
    let pushback = match wait {
        Some(wait) => milliseconds(wait).and_then(value::number),
        None if refusal.is_oversized() => Some(HeaderValue::from_static("-1")),
        None => None,
    };
    let details = match refusal.cause() {
        // The other limits are not the reason for this refusal.
        Cause::Unsupported => None,
        _ => status_details(code, &message, wait, refusal.outcome()),
    };
    for (name, value) in [
        (GRPC_STATUS, value::number(code.into())),
        (GRPC_MESSAGE, percent_encoded(&message)),
        (GRPC_RETRY_PUSHBACK, pushback),
        (GRPC_STATUS_DETAILS, details),
    ] {
        if let Some(value) = value {
            headers.insert(name, value);
        }
    }
    if matches!(refusal.cause(), Cause::Limit) {
        settings.fields(refusal.outcome()).write(headers);
    }
}

/// Returns the code (`google.rpc.Code`) of a refusal.
fn code_of(settings: &SharedSettings, refusal: &Refusal) -> u32 {
    match refusal.cause() {
        Cause::Limit if refusal.is_oversized() => settings.oversized_code as u32,
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
/// The field is a signed 32-bit number. Some clients read a larger one as "do not retry".
fn milliseconds(wait: Duration) -> Option<u64> {
    let millis = wait.as_nanos().div_ceil(1_000_000).max(1);
    i32::try_from(millis).ok()?.try_into().ok()
}

/// Returns the value of `grpc-message`: all bytes except %x20 to %x7E are encoded, and `%` too
/// (gRPC over HTTP/2, Responses).
fn percent_encoded(message: &str) -> Option<HeaderValue> {
    let mut buffer = Vec::with_capacity(message.len());
    for &byte in message.as_bytes() {
        match byte {
            b'%' | ..0x20 | 0x7f.. => {
                buffer.extend_from_slice(format!("%{byte:02X}").as_bytes());
            }
            _ => buffer.push(byte),
        }
    }
    HeaderValue::try_from(buffer).ok()
}

/// The longest `google.protobuf.Duration`: 10,000 years. A longer wait is omitted, because a
/// shorter one would be wrong.
const LONGEST: Duration = Duration::from_secs(315_576_000_000);

/// Returns the value of `grpc-status-details-bin`: a `google.rpc.Status` in protobuf, in Base64;
/// `None` if there are no details.
///
/// `RetryInfo` contains the wait in nanoseconds, unless it is too long. `QuotaFailure` contains the
/// names and quotas of the policies that refuse, and nothing about the client.
fn status_details(
    code: u32,
    message: &str,
    wait: Option<Duration>,
    outcome: &Outcome,
) -> Option<HeaderValue> {
    // By hand: four small messages (googleapis `google/rpc/status.proto` and `error_details.proto`)
    // are no reason for a code generator in every user's build.
    let mut details = Vec::new();
    if let Some(wait) = wait.filter(|wait| *wait <= LONGEST) {
        push_any(
            &mut details,
            "type.googleapis.com/google.rpc.RetryInfo",
            &retry_info(wait),
        );
    }
    let failure = quota_failure(outcome);
    if !failure.is_empty() {
        push_any(
            &mut details,
            "type.googleapis.com/google.rpc.QuotaFailure",
            &failure,
        );
    }
    if details.is_empty() {
        return None;
    }
    let mut status = Vec::with_capacity(message.len() + details.len() + 8);
    push_number(&mut status, 1, code.into());
    push_bytes(&mut status, 2, message.as_bytes());
    status.extend_from_slice(&details);
    HeaderValue::try_from(value::base64(&status)).ok()
}

/// Returns `RetryInfo { retry_delay = 1 }`.
fn retry_info(wait: Duration) -> Vec<u8> {
    let mut duration = Vec::new();
    push_number(&mut duration, 1, wait.as_secs());
    push_number(&mut duration, 2, wait.subsec_nanos().into());
    let mut info = Vec::new();
    push_bytes(&mut info, 1, &duration);
    info
}

/// Returns `QuotaFailure { violations = 1: [Violation { subject = 1, description = 2 }] }`.
fn quota_failure(outcome: &Outcome) -> Vec<u8> {
    let mut failure = Vec::new();
    for (policy, decision) in outcome.refusals() {
        let description = match decision.quota() {
            _ if decision.is_oversized() => {
                "the request costs more than could ever pass".to_owned()
            }
            Some(quota) => format!("the quota of {quota} is exhausted"),
            None if decision.is_in_flight() => "too many calls in flight".to_owned(),
            None => "the quota is exhausted".to_owned(),
        };
        let mut violation = Vec::new();
        push_bytes(&mut violation, 1, policy.name().as_bytes());
        push_bytes(&mut violation, 2, description.as_bytes());
        push_bytes(&mut failure, 1, &violation);
    }
    failure
}

/// Appends an element of `Status.details`: `Any { type_url = 1, value = 2 }`.
fn push_any(status: &mut Vec<u8>, type_url: &str, value: &[u8]) {
    let mut any = Vec::with_capacity(type_url.len() + value.len() + 8);
    push_bytes(&mut any, 1, type_url.as_bytes());
    push_bytes(&mut any, 2, value);
    push_bytes(status, 3, &any);
}

/// Appends a length-delimited field.
fn push_bytes(message: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    message.push(field << 3 | 2);
    push_varint(message, bytes.len() as u64);
    message.extend_from_slice(bytes);
}

/// Appends a field that is a number. 0 is the default and is omitted.
fn push_number(message: &mut Vec<u8>, field: u8, number: u64) {
    if number > 0 {
        message.push(field << 3);
        push_varint(message, number);
    }
}

fn push_varint(message: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        message.push(number as u8 | 0x80);
        number >>= 7;
    }
    message.push(number as u8);
}
