//! Problem documents (RFC 9457) as the bodies of refusals.

use http::{
    HeaderValue,
    header::{CONTENT_LENGTH, CONTENT_TYPE},
    response::Parts,
};

use super::refusal::{BodyForm, Cause, Refusal};

/// A problem document as the body: the default of [`Http`](super::Http).
///
/// `application/problem+json` (RFC 9457) with the types of draft-ietf-httpapi-ratelimit-headers-11 §5:
///
/// | | status | type |
/// |---|---|---|
/// | a limit was reached | 429 | `…#quota-exceeded` |
/// | a limit was reached whose policy [marks abnormal usage](crate::Policy::with_abnormal_usage) | 429 | `…#abnormal-usage-detected` |
/// | the store could not decide | 503 | `…#temporary-reduced-capacity` |
/// | the store [does not support](crate::store::Error::unsupported) the call | 500 | `about:blank` |
/// | no key | that of the [`MissingKey`](crate::key::MissingKey) | `about:blank` |
///
/// # Examples
///
/// ```
/// use tollgate::respond::{Http, ProblemBody};
///
/// // For response bodies that are `From<String>`.
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProblemBody;

/// A registered problem type and its title.
struct ProblemType {
    uri: &'static str,
    title: &'static str,
}

const QUOTA_EXCEEDED: ProblemType = ProblemType {
    uri: "https://iana.org/assignments/http-problem-types#quota-exceeded",
    title: "Request cannot be satisfied as assigned quota has been exceeded",
};
const ABNORMAL_USAGE: ProblemType = ProblemType {
    uri: "https://iana.org/assignments/http-problem-types#abnormal-usage-detected",
    title: "Request not satisfied due to detection of abnormal request pattern",
};
const REDUCED_CAPACITY: ProblemType = ProblemType {
    uri: "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
    title: "Request cannot be satisfied due to temporary server capacity constraints",
};

impl ProblemBody {
    /// Returns the document, or an empty text if the response must not have a body.
    pub(super) fn text(self, refusal: &Refusal, parts: &mut Parts) -> String {
        if refusal.form() != BodyForm::Grpc {
            let json = HeaderValue::from_static("application/problem+json");
            parts.headers.insert(CONTENT_TYPE, json);
        }
        match refusal.form() {
            BodyForm::Full => document(refusal, parts),
            BodyForm::Head => {
                // The length for GET (RFC 9110 §8.6); a framework would otherwise set that of the empty body.
                let length = document(refusal, parts).len();
                parts
                    .headers
                    .insert(CONTENT_LENGTH, HeaderValue::from(length));
                String::new()
            }
            BodyForm::Grpc => String::new(),
        }
    }
}

fn document(refusal: &Refusal, parts: &Parts) -> String {
    let abnormal = || {
        let mut refusing = refusal.outcome().refusals();
        refusing.any(|(policy, _)| policy.is_abnormal_usage())
    };
    let problem = match refusal.cause() {
        Cause::Limit if abnormal() => ABNORMAL_USAGE,
        Cause::Limit => QUOTA_EXCEEDED,
        Cause::Undecided => REDUCED_CAPACITY,
        Cause::Unsupported | Cause::MissingKey(_) => ProblemType {
            uri: "about:blank",
            title: parts.status.canonical_reason().unwrap_or("Request refused"),
        },
    };
    let mut json = String::with_capacity(256);
    json.push_str("{\"type\":");
    push_string(&mut json, problem.uri);
    json.push_str(",\"title\":");
    push_string(&mut json, problem.title);
    json.push_str(",\"status\":");
    json.push_str(parts.status.as_str());
    match refusal.cause() {
        Cause::Limit => {
            json.push_str(",\"violated-policies\":[");
            for (index, (policy, _)) in refusal.outcome().refusals().enumerate() {
                if index > 0 {
                    json.push(',');
                }
                push_string(&mut json, policy.name());
            }
            json.push(']');
        }
        // A fault of the server is not described to clients.
        Cause::MissingKey(missing) if !missing.is_server_fault() => {
            json.push_str(",\"detail\":");
            push_string(&mut json, missing.detail());
        }
        Cause::MissingKey(_) | Cause::Undecided | Cause::Unsupported => {}
    }
    json.push('}');
    json
}

/// Appends a JSON string (RFC 8259 §7).
fn push_string(json: &mut String, text: &str) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    json.push('"');
    for char in text.chars() {
        match char {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            '\0'..='\x1f' => {
                json.push_str("\\u00");
                json.push(HEX[char as usize >> 4].into());
                json.push(HEX[char as usize & 15].into());
            }
            _ => json.push(char),
        }
    }
    json.push('"');
}

#[cfg(test)]
mod tests {
    #[test]
    fn strings_parse_to_the_original() {
        let all: String = ('\0'..'\u{100}')
            .chain("\u{2028}\u{ffff}😀".chars())
            .collect();
        let mut json = String::new();
        super::push_string(&mut json, &all);
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), all);
    }
}
