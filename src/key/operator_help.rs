//! Texts for the operator of a server.

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

use crate::policy::Policy;

/// A text for the operator of the server that must not be sent to clients.
///
/// It names missing types, addresses or settings of the program. This type does not implement `Display`, and its `Debug`
/// hides the text, so neither the closure of [`Http::body`](crate::respond::Http::body) nor a framework that prints errors
/// can send it by accident. Only [`expose_to_operator`](Self::expose_to_operator) returns the text. With the feature `tracing`
/// it is logged. If nobody hears that, the first one is written to standard error.
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
    /// Creates a help text. It should say what is wrong, what was expected, and what to do.
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

    /// Writes the text to standard error if nobody hears a log: a server that answers 500 to everything and says nothing anywhere would
    /// be searched for hours. Only the first text of the process, because standard error is the application's.
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
        // It may be closed.
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
pub(super) enum SharedText {
    Static(&'static str),
    Shared(Arc<str>),
}

impl SharedText {
    pub(super) fn new(text: impl Into<Cow<'static, str>>) -> Self {
        match text.into() {
            Cow::Borrowed(text) => Self::Static(text),
            Cow::Owned(text) => Self::Shared(text.into()),
        }
    }

    pub(super) fn as_str(&self) -> &str {
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
