//! The bodies of refusals: problem documents (RFC 9457), none, or those of a closure.

use std::{borrow::Cow, sync::Arc};

use http::{
    HeaderValue, StatusCode,
    header::{CONTENT_LENGTH, CONTENT_TYPE},
    response::Parts,
};
use http_body::Body;

use super::{
    interner::{FirstInterned, Interner},
    refusal::{Cause, Refusal},
};
use crate::policy::Policy;

/// Makes the body of a refusal.
///
/// This trait is sealed: pass a closure to [`Http::body`](super::Http::body) for a body of your
/// own.
///
/// | | bodies |
/// |---|---|
/// | [`ProblemBody`] | types that are `From<Cow<'static, str>>` |
/// | [`EmptyBody`] | types that are `Default` |
/// | [`BodyFn`] | the type that its closure returns, which is `http_body::Body + Default` |
pub trait MakeBody<B>: sealed::Sealed {
    /// Returns the body of `refusal` in this form, and sets the fields that describe it in `parts`.
    #[doc(hidden)]
    fn make(&self, form: BodyForm, refusal: &Refusal, parts: &mut Parts) -> B;
}

/// The part of a response that a refusal fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyForm {
    Full,
    /// The fields of the full answer without its body (RFC 9110 §9.3.2).
    Head,
    /// Header fields alone.
    Grpc,
}

/// Sets the length of the body that GET would get (RFC 9110 §8.6). A framework would otherwise set
/// that of the empty body.
fn set_length(parts: &mut Parts, length: u64) {
    let status = parts.status;
    let has_body = !status.is_informational()
        && ![StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED].contains(&status);
    if has_body {
        let length = HeaderValue::from(length);
        parts.headers.entry(CONTENT_LENGTH).or_insert(length);
    }
}

mod sealed {
    pub trait Sealed {}

    impl Sealed for crate::respond::ProblemBody {}
    impl Sealed for super::EmptyBody {}
    impl<F> Sealed for super::BodyFn<F> {}
}

/// An empty body, made by [`Http::empty`](super::Http::empty).
///
/// ```
/// use tollgate::respond::{EmptyBody, Http};
///
/// let respond: Http<EmptyBody> = Http::empty();
/// # let _ = respond;
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EmptyBody;

impl<B: Default> MakeBody<B> for EmptyBody {
    fn make(&self, _: BodyForm, _: &Refusal, _: &mut Parts) -> B {
        B::default()
    }
}

/// The body that a closure returns, made by [`Http::body`](super::Http::body).
///
/// ```
/// use http::response::Parts;
/// use tollgate::respond::{BodyFn, Http, Refusal};
///
/// fn plain_text() -> Http<BodyFn<fn(&Refusal, &mut Parts) -> String>> {
///     Http::body(|refusal, _| refusal.to_string())
/// }
/// # let _ = plain_text();
/// ```
#[derive(Clone, Copy)]
pub struct BodyFn<F>(pub(super) F);

impl<F, B> MakeBody<B> for BodyFn<F>
where
    F: Fn(&Refusal, &mut Parts) -> B,
    B: Body + Default,
{
    fn make(&self, form: BodyForm, refusal: &Refusal, parts: &mut Parts) -> B {
        if form == BodyForm::Grpc {
            return B::default();
        }
        let body = (self.0)(refusal, parts);
        if form == BodyForm::Full {
            return body;
        }
        if let Some(length) = body.size_hint().exact() {
            set_length(parts, length);
        }
        B::default()
    }
}

impl_debug!(BodyFn<F>);

impl<B: From<Cow<'static, str>>> MakeBody<B> for ProblemBody {
    fn make(&self, form: BodyForm, refusal: &Refusal, parts: &mut Parts) -> B {
        self.text(form, refusal, parts).into()
    }
}

/// A problem document as the body, the default of [`Http`](super::Http).
///
/// `application/problem+json` (RFC 9457) with the types of draft-ietf-httpapi-ratelimit-headers-11
/// §5:
///
/// | | status | type |
/// |---|---|---|
/// | a limit was reached | 429 | `…#quota-exceeded` |
/// | a limit was reached whose policy [marks abnormal usage](crate::Policy::with_abnormal_usage) | 429 | `…#abnormal-usage-detected` |
/// | the request [can never pass](Refusal::is_oversized) | [413](super::Http::oversized_status) | `about:blank`, with `detail` and `"retryable":false` |
/// | the store could not decide | 503 | `…#temporary-reduced-capacity` |
/// | the store [does not support](crate::store::StoreError::unsupported) the call | 500 | `about:blank` |
/// | no key | that of the [`MissingKey`](crate::key::MissingKey) | `about:blank` |
///
/// # Examples
///
/// ```
/// use tollgate::respond::{Http, ProblemBody};
///
/// // For response bodies that are `From<Cow<'static, str>>`.
/// let respond: Http<ProblemBody> = Http::new();
/// # let _ = respond;
/// ```
///
/// The body of a refusal:
///
/// ```text
/// {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded",
///  "title":"Request cannot be satisfied as assigned quota has been exceeded",
///  "status":429,"violated-policies":["api"]}
/// ```
#[doc(alias = "rfc9457")]
#[derive(Clone, Debug, Default)]
pub struct ProblemBody {
    /// The document of the layer's only limit.
    document: Arc<FirstInterned<PolicyDocument>>,
}

/// The document of a refusal by one policy. It is equal for all requests.
#[derive(Debug)]
struct PolicyDocument {
    policy: Policy,
    text: String,
}

static DOCUMENTS: Interner<PolicyDocument> = Interner::new();

/// The beginning of a document of a registered problem type, up to its status.
macro_rules! head {
    ($name:literal, $title:literal) => {
        concat!(
            r#"{"type":"https://iana.org/assignments/http-problem-types#"#,
            $name,
            r#"","title":""#,
            $title,
            r#"","status":"#
        )
    };
}

const QUOTA_EXCEEDED: &str = head!(
    "quota-exceeded",
    "Request cannot be satisfied as assigned quota has been exceeded"
);
const ABNORMAL_USAGE: &str = head!(
    "abnormal-usage-detected",
    "Request not satisfied due to detection of abnormal request pattern"
);
const REDUCED_CAPACITY: &str = head!(
    "temporary-reduced-capacity",
    "Request cannot be satisfied due to temporary server capacity constraints"
);
/// The document of a request that can never pass, after its status and up to the names of the
/// policies.
///
/// The draft has no type for it, and clients that know `quota-exceeded` retry.
const OVERSIZED: &str = concat!(
    r#","detail":"The request costs more than these policies can ever admit at once. Do not send it again as it is.","#,
    r#""retryable":false,"violated-policies":["#
);
/// The beginning of a document without a registered problem type, up to its title.
const ABOUT_BLANK: &str = r#"{"type":"about:blank","title":""#;

impl ProblemBody {
    /// Returns the document, or an empty text if the response must not have a body.
    fn text(&self, form: BodyForm, refusal: &Refusal, parts: &mut Parts) -> Cow<'static, str> {
        if form != BodyForm::Grpc {
            let json = HeaderValue::from_static("application/problem+json");
            parts.headers.insert(CONTENT_TYPE, json);
        }
        match form {
            BodyForm::Full => self.document(refusal, parts.status),
            BodyForm::Head => {
                let length = self.document(refusal, parts.status).len();
                set_length(parts, length as u64);
                Cow::Borrowed("")
            }
            BodyForm::Grpc => Cow::Borrowed(""),
        }
    }

    #[inline]
    fn document(&self, refusal: &Refusal, status: StatusCode) -> Cow<'static, str> {
        // Most layers have one limit, and its refusals have one document.
        if let (Cause::Limit, Some((policy, _))) = (refusal.cause(), refusal.outcome().only())
            && status == StatusCode::TOO_MANY_REQUESTS
            && !refusal.is_oversized()
            && let Some(interned) = self.document.get(
                &DOCUMENTS,
                |interned| interned.policy.same_problem(policy),
                || Some(PolicyDocument::new(policy.clone(), status)),
            )
        {
            return Cow::Borrowed(&interned.text);
        }
        Cow::Owned(document(refusal, status))
    }
}

impl PolicyDocument {
    #[cold]
    fn new(policy: Policy, status: StatusCode) -> Self {
        let text = quota_exceeded(&[&policy], status);
        Self { policy, text }
    }
}

/// Returns the document in a string without spare capacity, which `Bytes` adopts without a copy.
fn document(refusal: &Refusal, status: StatusCode) -> String {
    let about_blank = || {
        let reason = status.canonical_reason();
        let title = reason.unwrap_or("Request refused");
        [ABOUT_BLANK, title, r#"","status":"#, status.as_str()]
    };
    match refusal.cause() {
        Cause::Limit if refusal.is_oversized() => {
            let outcome = refusal.outcome().iter();
            let oversized = outcome.filter(|(_, decision)| decision.is_oversized());
            let names = names(oversized.map(|(policy, _)| policy));
            let [start, title, middle, status] = about_blank();
            [start, title, middle, status, OVERSIZED, &names, "]}"].concat()
        }
        Cause::Limit => {
            let refusing = refusal.outcome().refusals().map(|(policy, _)| policy);
            quota_exceeded(&refusing.collect::<Vec<_>>(), status)
        }
        Cause::Undecided => [REDUCED_CAPACITY, status.as_str(), "}"].concat(),
        // A fault of the server is not described to clients.
        Cause::MissingKey(missing) if !missing.is_server_fault() => {
            let [start, title, middle, status] = about_blank();
            let detail = escaped(missing.detail());
            [
                start,
                title,
                middle,
                status,
                r#","detail":""#,
                &detail,
                r#""}"#,
            ]
            .concat()
        }
        Cause::Unsupported | Cause::MissingKey(_) => {
            let [start, title, middle, status] = about_blank();
            [start, title, middle, status, "}"].concat()
        }
    }
}

/// Returns the document of a refusal by these policies.
fn quota_exceeded(refusing: &[&Policy], status: StatusCode) -> String {
    let head = match refusing.iter().any(|policy| policy.is_abnormal_usage()) {
        true => ABNORMAL_USAGE,
        false => QUOTA_EXCEEDED,
    };
    let names = names(refusing.iter().copied());
    [
        head,
        status.as_str(),
        r#","violated-policies":["#,
        &names,
        "]}",
    ]
    .concat()
}

/// Returns the names of policies as the elements of a JSON array.
fn names<'a>(policies: impl Iterator<Item = &'a Policy>) -> String {
    let names: Vec<_> = policies
        .map(|policy| ["\"", &escaped(policy.name()), "\""].concat())
        .collect();
    names.join(",")
}

/// Returns the content of a JSON string (RFC 8259 §7).
fn escaped(text: &str) -> Cow<'_, str> {
    let must_escape = |byte: u8| byte < 0x20 || byte == b'"' || byte == b'\\';
    // Without an early return, so that it is vectorized.
    let any = |any, byte| any | must_escape(byte);
    if !text.bytes().fold(false, any) {
        return text.into();
    }
    let mut escaped = String::with_capacity(2 * text.len());
    for char in text.chars() {
        match char {
            '"' | '\\' => escaped.extend(['\\', char]),
            '\0'..='\x1f' => escaped.push_str(&format!("\\u{:04x}", u32::from(char))),
            _ => escaped.push(char),
        }
    }
    escaped.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_parse_to_the_original() {
        let all: String = ('\0'..'\u{100}')
            .chain("\u{2028}\u{ffff}😀".chars())
            .collect();
        let json = format!("\"{}\"", escaped(&all));
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), all);
    }
}
