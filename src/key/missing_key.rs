//! The error of a request without a key.

use std::{borrow::Cow, fmt, sync::Arc};

use http::StatusCode;

use super::operator_help::{OperatorHelp, SharedText};

/// The error of a [`KeyExtractor`](super::KeyExtractor) for a request without a key.
///
/// The layer answers with [`status`](Self::status), 400 by default, and spends nothing. The methods of
/// [`KeyExtractorExt`](super::KeyExtractorExt) choose something else.
///
/// # Texts for clients and for operators
///
/// | at fault | made by | for clients: [`detail`](Self::detail), `Display`, `Debug` | for operators: [`help`](Self::help) |
/// |---|---|---|---|
/// | the request | [`new`](Self::new) | the text given to `new` | none |
/// | the server | [`misconfigured`](Self::misconfigured) | `internal error` | the text given to `misconfigured` |
///
/// # Examples
///
/// ```
/// use http::StatusCode;
/// use tollgate::key::MissingKey;
///
/// let missing = MissingKey::new("there must be a cookie `session`").with_status(StatusCode::UNAUTHORIZED);
/// assert_eq!(missing.detail(), "there must be a cookie `session`");
/// assert_eq!(missing.status(), 401);
///
/// let misconfigured = MissingKey::misconfigured("no session store: set `SESSION_URL`");
/// assert_eq!(misconfigured.detail(), "internal error");
/// assert_eq!(misconfigured.status(), 500);
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct MissingKey {
    text: MissingKeyText,
    challenge: Option<&'static str>,
    // A whole word: next to a key in a `Result`, smaller fields would split the key's words.
    status: u64,
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum MissingKeyText {
    Client(SharedText),
    Operator(OperatorHelp),
    /// As `Operator`, but for what may be missing if another extractor stands in.
    Absent(OperatorHelp),
}

/// The text for clients if the server is at fault.
const INTERNAL: &str = "internal error";

impl MissingKey {
    /// Creates an error for a request that lacks something.
    ///
    /// `detail` is a phrase for the client, such as "there must be one header `x-api-key`".
    pub fn new(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::from_text(MissingKeyText::Client(SharedText::new(detail)))
    }

    /// Creates an error as [`new`](Self::new) does, without an allocation per request.
    pub(super) fn shared(detail: &Arc<str>) -> Self {
        Self::from_text(MissingKeyText::Client(SharedText::Shared(detail.clone())))
    }

    fn from_text(text: MissingKeyText) -> Self {
        Self {
            text,
            challenge: None,
            status: u64::from(StatusCode::BAD_REQUEST.as_u16()),
        }
    }

    /// Creates an error for a server that lacks something the key needs.
    ///
    /// The layer answers with 500 and [counts](crate::RateLimitLayer::misconfigured) the request. `help` is for the
    /// operator and is never sent to a client. It stays the answer under every method of
    /// [`KeyExtractorExt`](super::KeyExtractorExt): a fallback would hide the fault. With the feature `tracing` the layer logs it once for each policy and text, so
    /// it should not contain data of a request.
    pub fn misconfigured(help: impl Into<Cow<'static, str>>) -> Self {
        Self::from_text(MissingKeyText::Operator(OperatorHelp::new(help)))
            .with_status(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// Creates an error of a server that has no value for a request: legitimate where a combinator says what to do then.
    pub(super) fn absent(help: OperatorHelp) -> Self {
        Self::from_text(MissingKeyText::Absent(help)).with_status(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// Returns `true` if a combinator may do something else than to report the error. What a server needs for every key is not
    /// among it: the clients would all be exempt, or share one key, and nobody would notice.
    pub(super) fn may_be_replaced(&self) -> bool {
        !matches!(self.text, MissingKeyText::Operator(_))
    }

    /// Sets the status of the answer.
    #[must_use]
    pub fn with_status(mut self, status: StatusCode) -> Self {
        self.status = u64::from(status.as_u16());
        self
    }

    /// Sets the status to 401, with this `WWW-Authenticate` (RFC 9110 §11.6.1), as in `"Bearer"`.
    #[must_use]
    pub fn with_challenge(mut self, challenge: &'static str) -> Self {
        self.challenge = Some(challenge);
        self.with_status(StatusCode::UNAUTHORIZED)
    }

    /// Returns the `WWW-Authenticate` that an answer with status 401 must carry (RFC 9110 §15.5.2).
    ///
    /// Returns `None` if none was set, or the status is not 401.
    pub fn challenge(&self) -> Option<&'static str> {
        self.challenge
            .filter(|_| self.status() == StatusCode::UNAUTHORIZED)
    }

    /// Returns the status of the answer.
    pub fn status(&self) -> StatusCode {
        // Always valid: it was made from a status.
        StatusCode::from_u16(self.status as u16).unwrap_or(StatusCode::BAD_REQUEST)
    }

    /// Returns `true` if the server is at fault, not the request.
    pub fn is_server_fault(&self) -> bool {
        self.help().is_some()
    }

    /// Returns a phrase for the client that says what is missing.
    ///
    /// It is `internal error` if [the server is at fault](Self::is_server_fault).
    pub fn detail(&self) -> &str {
        match &self.text {
            MissingKeyText::Client(detail) => detail.as_str(),
            MissingKeyText::Operator(_) | MissingKeyText::Absent(_) => INTERNAL,
        }
    }

    /// Returns help for the operator; `None` if the request is at fault.
    pub fn help(&self) -> Option<&OperatorHelp> {
        match &self.text {
            MissingKeyText::Client(_) => None,
            MissingKeyText::Operator(help) | MissingKeyText::Absent(help) => Some(help),
        }
    }
}

impl fmt::Debug for MissingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MissingKey({}: {})", self.status, self.detail())
    }
}

/// The text for clients.
impl fmt::Display for MissingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.text {
            MissingKeyText::Client(detail) => {
                write!(f, "the request cannot be limited: {}", detail.as_str())
            }
            MissingKeyText::Operator(_) | MissingKeyText::Absent(_) => f.write_str(INTERNAL),
        }
    }
}

impl std::error::Error for MissingKey {}
