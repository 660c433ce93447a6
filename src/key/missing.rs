//! What happens to requests without a key.

use std::{borrow::Cow, fmt, sync::Arc};

use http::StatusCode;

/// The request does not hold what the key is made of.
///
/// The layer answers with [`status`](Self::status), 400 unless changed, and spends
/// nothing. [`or`](super::KeyExtractorExt::or) and its siblings on the extractor choose
/// something else.
#[derive(Clone)]
pub struct MissingKey {
    what: What,
    challenge: Option<&'static str>,
    // Words only: beside a key in a `Result`, smaller fields would cut its words into pieces.
    status: u64,
    server_fault: u64,
}

#[derive(Clone)]
enum What {
    Static(&'static str),
    Shared(Arc<str>),
}

impl MissingKey {
    /// `what` was not in the request: a phrase like "no header `x-api-key`".
    pub fn new(what: impl Into<Cow<'static, str>>) -> Self {
        Self::of(match what.into() {
            Cow::Borrowed(what) => What::Static(what),
            Cow::Owned(what) => What::Shared(what.into()),
        })
    }

    /// The same as [`new`](Self::new), without an allocation for every request.
    pub(super) fn shared(what: &Arc<str>) -> Self {
        Self::of(What::Shared(what.clone()))
    }

    fn of(what: What) -> Self {
        Self {
            what,
            challenge: None,
            status: u64::from(StatusCode::BAD_REQUEST.as_u16()),
            server_fault: 0,
        }
    }

    /// The server was set up without what the key needs: answered with 500 and logged once.
    pub fn misconfigured(what: impl Into<Cow<'static, str>>) -> Self {
        Self::new(what).into_misconfigured()
    }

    pub(super) fn into_misconfigured(mut self) -> Self {
        self.server_fault = 1;
        self.with_status(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// The same, answered with another status.
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
    ///
    /// The client is told no details then.
    pub fn is_server_fault(&self) -> bool {
        self.server_fault == 1
    }

    /// What was missing, in a phrase.
    pub fn what(&self) -> &str {
        match &self.what {
            What::Static(what) => what,
            What::Shared(what) => what,
        }
    }
}

impl fmt::Debug for MissingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MissingKey({}: {})", self.status, self.what())
    }
}

impl fmt::Display for MissingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the request cannot be limited: {}", self.what())
    }
}

impl std::error::Error for MissingKey {}

impl PartialEq for MissingKey {
    fn eq(&self, other: &Self) -> bool {
        (self.what(), self.status, self.server_fault, self.challenge)
            == (
                other.what(),
                other.status,
                other.server_fault,
                other.challenge,
            )
    }
}

impl Eq for MissingKey {}
