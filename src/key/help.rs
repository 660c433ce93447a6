//! Words for the operator of a server.

use std::{borrow::Cow, fmt, sync::Arc};

/// Help for the operator of the server, which its clients must not read.
///
/// It names what was forgotten in the program: types, addresses, settings. What a client may read is a `&str`, or
/// whatever implements `Display`; this implements no such trait, and its `Debug` hides the text. So the closure of
/// [`Http::body`](crate::respond::Http::body) cannot write it by accident, nor can a framework that prints errors.
/// The one way to the text is [`expose_to_operator`](Self::expose_to_operator). With the feature `tracing` it is logged.
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
#[derive(Clone, PartialEq, Eq)]
pub struct OperatorHelp(Text);

impl OperatorHelp {
    /// A text that says what is wrong with the server, what was expected, and what to do.
    pub fn new(text: impl Into<Cow<'static, str>>) -> Self {
        Self(Text::new(text))
    }

    /// The same as [`new`](Self::new), where it must be constant.
    pub(crate) const fn of_static(text: &'static str) -> Self {
        Self(Text::Static(text))
    }

    /// The text, for a log, a terminal or a dashboard, and no answer.
    pub fn expose_to_operator(&self) -> &str {
        self.0.as_str()
    }
}

impl fmt::Debug for OperatorHelp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OperatorHelp(..)")
    }
}

/// A text that is cloned without an allocation.
#[derive(Clone)]
pub(super) enum Text {
    Static(&'static str),
    Shared(Arc<str>),
}

impl Text {
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

impl PartialEq for Text {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Text {}
