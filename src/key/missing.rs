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
    status: StatusCode,
    server_fault: bool,
    challenge: Option<&'static str>,
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
            status: StatusCode::BAD_REQUEST,
            server_fault: false,
            challenge: None,
        }
    }

    /// The server was set up without what the key needs: answered with 500 and logged once.
    pub fn misconfigured(what: impl Into<Cow<'static, str>>) -> Self {
        Self::new(what).into_misconfigured()
    }

    pub(super) fn into_misconfigured(mut self) -> Self {
        self.status = StatusCode::INTERNAL_SERVER_ERROR;
        self.server_fault = true;
        self
    }

    /// The same, answered with another status.
    #[must_use]
    pub fn with_status(mut self, status: StatusCode) -> Self {
        self.status = status;
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
            .filter(|_| self.status == StatusCode::UNAUTHORIZED)
    }

    /// The status to answer with.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Whether the server lacks something, rather than the request.
    ///
    /// The client is told no details then.
    pub fn is_server_fault(&self) -> bool {
        self.server_fault
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
        write!(f, "MissingKey({}: {})", self.status.as_u16(), self.what())
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
