//! The error of a request without a key, and the text for the operator in it.
//!
//! Text for clients and text for operators are different types. `OperatorHelp` has neither
//! `Display` nor a `Debug` that shows it, because closures of users print refusals into bodies.

use std::{
    borrow::Cow,
    fmt,
    hash::{Hash, Hasher},
    io::{self, Write},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use http::StatusCode;

use crate::policy::Policy;

/// The error of a [`KeyExtractor`](super::KeyExtractor) for a request without a key.
///
/// The layer answers with [`status`](Self::status), 400 by default, and spends nothing. The methods
/// of [`KeyExtractorExt`](super::KeyExtractorExt) choose something else.
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
/// let missing =
///     MissingKey::new("there must be a cookie `session`").with_status(StatusCode::UNAUTHORIZED);
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
    // Eight bytes: in a `Result` with a key, a smaller field would split the key's words.
    status: u64,
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum MissingKeyText {
    Client(SharedText),
    Operator(OperatorHelp),
    /// As `Operator`, but a combinator says that the value may be absent, which makes it the
    /// request's fault.
    Absent(OperatorHelp),
}

/// The text for clients if the server is at fault.
const INTERNAL: &str = "internal error";

/// The text for clients if an extractor knows nothing else.
pub(super) const NO_KEY: &str = "there must be a key in the request";

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
    /// The layer answers with 500 and [counts](crate::RateLimitLayer::misconfigured) the request.
    /// `help` is for the operator and is never sent to a client. It stays the answer under every
    /// method of [`KeyExtractorExt`](super::KeyExtractorExt): a fallback would hide the fault. With
    /// the feature `tracing` the layer logs it once for each policy and text, so it should not
    /// contain data of a request.
    pub fn misconfigured(help: impl Into<Cow<'static, str>>) -> Self {
        Self::from_text(MissingKeyText::Operator(OperatorHelp::new(help)))
            .with_status(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// Creates an error of a server that has no value for a request. It is the server's fault
    /// unless a combinator says that the value may be absent.
    pub(super) fn absent(help: OperatorHelp) -> Self {
        Self::from_text(MissingKeyText::Absent(help)).with_status(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// Returns `true` if the value may be absent under a combinator.
    pub(super) fn is_absent(&self) -> bool {
        matches!(self.text, MissingKeyText::Absent(_))
    }

    /// Returns the error under a combinator: an absent value is the request's fault.
    pub(super) fn combined(self) -> Self {
        if self.is_absent() {
            Self::new(NO_KEY)
        } else {
            self
        }
    }

    /// Returns `true` if a combinator may replace the error.
    ///
    /// `false` for a misconfigured server: otherwise all clients would be exempt or share one key,
    /// and nobody would notice.
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

/// A text for the operator of the server that must not be sent to clients.
///
/// It names missing types, addresses or settings of the program. This type does not implement
/// `Display`, and its `Debug` hides the text, so neither the closure of
/// [`Http::body`](crate::respond::Http::body) nor a framework that prints errors can send it by
/// accident. Only [`expose_to_operator`](Self::expose_to_operator) returns the text. With the
/// feature `tracing` it is logged. If errors are not logged, the first text is written to standard
/// error.
///
/// # Examples
///
/// ```
/// use http::Request;
/// use tollgate::key::{KeyExtractor, PeerIp};
///
/// let missing = PeerIp::new().extract(&Request::new(())).unwrap_err();
/// assert_eq!(missing.to_string(), "internal error");
///
/// let help = missing.help().ok_or("the server's fault")?;
/// assert_eq!(format!("{help:?}"), "OperatorHelp(..)");
/// assert!(help.expose_to_operator().contains("into_make_service_with_connect_info"));
/// # Ok::<(), &str>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct OperatorHelp(SharedText);

impl OperatorHelp {
    /// Creates a help text, which should say what is wrong, what was expected, and what to do.
    pub fn new(text: impl Into<Cow<'static, str>>) -> Self {
        Self(SharedText::new(text))
    }

    /// Creates a help text in a constant.
    pub(crate) const fn of_static(text: &'static str) -> Self {
        Self(SharedText::Static(text))
    }

    /// Returns the text, for a log, a terminal or a dashboard. Never send it to a client.
    pub fn expose_to_operator(&self) -> &str {
        self.0.as_str()
    }

    /// Writes the text to standard error if errors are not logged, once in a process.
    ///
    /// Otherwise a server could answer 500 to every request without a hint of the cause. Only once,
    /// because standard error belongs to the application.
    #[cold]
    pub(crate) fn write_if_unheard(&self, policy: &Policy) {
        static WRITTEN: AtomicBool = AtomicBool::new(false);
        #[cfg(feature = "tracing")]
        if tracing::enabled!(tracing::Level::ERROR) {
            return;
        }
        if WRITTEN.swap(true, Ordering::Relaxed) {
            return;
        }
        let cause = self.expose_to_operator();
        // Standard error may be closed.
        let _ = writeln!(
            io::stderr(),
            "tollgate: the limit `{policy}` refuses requests as the server's fault: {cause} (written once, because nobody hears the errors \
             that the feature `tracing` logs; all are counted in `RateLimitLayer::misconfigured`)"
        );
    }
}

impl fmt::Debug for OperatorHelp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OperatorHelp(..)")
    }
}

/// A text that is cloned without an allocation.
#[derive(Clone)]
enum SharedText {
    Static(&'static str),
    Shared(Arc<str>),
}

impl SharedText {
    fn new(text: impl Into<Cow<'static, str>>) -> Self {
        match text.into() {
            Cow::Borrowed(text) => Self::Static(text),
            Cow::Owned(text) => Self::Shared(text.into()),
        }
    }

    fn as_str(&self) -> &str {
        match self {
            Self::Static(text) => text,
            Self::Shared(text) => text,
        }
    }
}

impl PartialEq for SharedText {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for SharedText {}

impl Hash for SharedText {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}
