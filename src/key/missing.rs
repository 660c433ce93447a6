//! What happens to requests without a key.

use std::{borrow::Cow, fmt, sync::Arc};

use http::StatusCode;

use super::help::{OperatorHelp, Text};

/// The request does not hold what the key is made of.
///
/// The layer answers with [`status`](Self::status), 400 unless changed, and spends
/// nothing. [`or`](super::KeyExtractorExt::or) and its siblings on the extractor choose
/// something else.
///
/// # Who may read what
///
/// | | made by | for clients: [`what`](Self::what), `Display`, `Debug` | for operators: [`help`](Self::help) |
/// |---|---|---|---|
/// | the request lacks it | [`new`](Self::new) | what to send | none |
/// | the server lacks it | [`misconfigured`](Self::misconfigured) | `internal error` | what to do |
#[derive(Clone, PartialEq, Eq)]
pub struct MissingKey {
    words: Words,
    challenge: Option<&'static str>,
    // A word: beside a key in a `Result`, smaller fields would cut its words into pieces.
    status: u64,
}

#[derive(Clone, PartialEq, Eq)]
enum Words {
    Client(Text),
    Operator(OperatorHelp),
}

/// What a client is told of what the server lacks.
const INTERNAL: &str = "internal error";

impl MissingKey {
    /// `what` was not in the request: a phrase for the client like "no header `x-api-key`".
    pub fn new(what: impl Into<Cow<'static, str>>) -> Self {
        Self::of(Words::Client(Text::new(what)))
    }

    /// The same as [`new`](Self::new), without an allocation for every request.
    pub(super) fn shared(what: &Arc<str>) -> Self {
        Self::of(Words::Client(Text::Shared(what.clone())))
    }

    fn of(words: Words) -> Self {
        Self {
            words,
            challenge: None,
            status: u64::from(StatusCode::BAD_REQUEST.as_u16()),
        }
    }

    /// The server was set up without what the key needs: answered with 500, and
    /// [counted](crate::RateLimitLayer::misconfigured).
    ///
    /// `help` is for the operator; no client reads it. With the feature `tracing` the layer logs it, once for each policy and
    /// text; so it should not be made of a request.
    pub fn misconfigured(help: impl Into<Cow<'static, str>>) -> Self {
        Self::with_help(OperatorHelp::new(help))
    }

    /// The same as [`misconfigured`](Self::misconfigured), without an allocation for every request.
    pub(super) fn with_help(help: OperatorHelp) -> Self {
        Self::of(Words::Operator(help)).with_status(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// The same, answered with another status.
    #[doc(alias("ban", "block", "blocklist", "denylist"))]
    #[must_use]
    pub fn with_status(mut self, status: StatusCode) -> Self {
        self.status = u64::from(status.as_u16());
        self
    }

    /// The same, answered with 401 and this `WWW-Authenticate` (RFC 9110 §11.6.1), as in `"Bearer"`.
    #[must_use]
    pub fn with_challenge(mut self, challenge: &'static str) -> Self {
        self.challenge = Some(challenge);
        self.with_status(StatusCode::UNAUTHORIZED)
    }

    /// The `WWW-Authenticate` that an answer with status 401 must carry (RFC 9110 §15.5.2).
    ///
    /// `None` where there is none, or the status is another one.
    pub fn challenge(&self) -> Option<&'static str> {
        self.challenge
            .filter(|_| self.status() == StatusCode::UNAUTHORIZED)
    }

    /// The status to answer with.
    pub fn status(&self) -> StatusCode {
        // It was made from a status.
        StatusCode::from_u16(self.status as u16).unwrap_or(StatusCode::BAD_REQUEST)
    }

    /// Whether the server lacks something, rather than the request.
    pub fn is_server_fault(&self) -> bool {
        self.help().is_some()
    }

    /// What was missing, in a phrase for the client; `internal error` where [the server lacks it](Self::is_server_fault).
    pub fn what(&self) -> &str {
        match &self.words {
            Words::Client(what) => what.as_str(),
            Words::Operator(_) => INTERNAL,
        }
    }

    /// What the server lacks and what to do, for its operator; `None` where the request lacks something.
    pub fn help(&self) -> Option<&OperatorHelp> {
        match &self.words {
            Words::Client(_) => None,
            Words::Operator(help) => Some(help),
        }
    }
}

impl fmt::Debug for MissingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MissingKey({}: {})", self.status, self.what())
    }
}

/// For clients.
impl fmt::Display for MissingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.words {
            Words::Client(what) => write!(f, "the request cannot be limited: {}", what.as_str()),
            Words::Operator(_) => f.write_str(INTERNAL),
        }
    }
}

impl std::error::Error for MissingKey {}
