//! The look-up of a token: a trait, which functions implement, and the claims that it returns.

use std::{error::Error, fmt, future::Future};

use crate::time::Timestamp;

/// Any error of a look-up, as tower's `BoxError`.
pub(super) type BoxError = Box<dyn Error + Send + Sync>;

/// Looks tokens up: [`Endpoint`](super::Endpoint), or any async function.
///
/// The future is a task of its own, which ends at the deadline.
///
/// # Examples
///
/// ```
/// use tollgate::key::introspect::{Claims, Introspect, Token};
/// use tower::BoxError;
///
/// async fn look_up(token: Token) -> Result<Option<Claims>, BoxError> {
///     // Asks a database; `None` is a token that is unknown, expired or revoked.
///     Ok((token.expose() == "s3cret")
///         .then(|| Claims::new().with_subject("ann").with_plan("gold")))
/// }
///
/// let layer = Introspect::builder(look_up).build()?;
/// # let _ = layer; Ok::<(), tollgate::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot look tokens up",
    note = "pass an `Endpoint`, or an async function from `Token` to `Result<Option<Claims>, BoxError>`"
)]
pub trait LookUp: Send + Sync + 'static {
    /// Returns the claims of an active token; `None` if the token is not active.
    ///
    /// # Errors
    ///
    /// An error counts as a failed look-up, not as an inactive token. Its text is logged, with the
    /// token removed. Under [`fail_open`](super::IntrospectBuilder::fail_open) the request passes,
    /// so return [`InvalidAnswer`] for an error that the token can cause, such as an answer that
    /// cannot be read. Such requests do not pass, and the errors are counted separately.
    fn look_up(
        &self,
        token: Token,
    ) -> impl Future<Output = Result<Option<Claims>, BoxError>> + Send + 'static;
}

impl<F, Fut> LookUp for F
where
    F: Fn(Token) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Option<Claims>, BoxError>> + Send + 'static,
{
    fn look_up(
        &self,
        token: Token,
    ) -> impl Future<Output = Result<Option<Claims>, BoxError>> + Send + 'static {
        self(token)
    }
}

/// A bearer token to look up. `Debug` hides it.
///
/// See [`LookUp`] for an example.
pub struct Token(Box<str>);

impl Token {
    pub(super) fn new(token: &str) -> Self {
        Self(token.into())
    }

    /// Returns the token. Do not log it: it is as good as a password.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// The error of an answer that cannot be read. It counts as a failed look-up.
///
/// It may be about the token alone, so it is no outage:
/// [`fail_open`](super::IntrospectBuilder::fail_open) does not apply.
///
/// ```
/// use tollgate::key::introspect::InvalidAnswer;
///
/// let error = InvalidAnswer::new("`plan` is a number: expected a text");
/// assert_eq!(error.to_string(), "invalid answer: `plan` is a number: expected a text");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidAnswer(Box<str>);

impl InvalidAnswer {
    /// Creates an error that says what was wrong and what was expected, without parts of the
    /// answer.
    pub fn new(message: impl Into<Box<str>>) -> Self {
        Self(message.into())
    }
}

impl fmt::Display for InvalidAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid answer: {}", self.0)
    }
}

impl Error for InvalidAnswer {}

/// The claims of an active token: the part of the response of RFC 7662 §2.2 that a limit needs.
///
/// All texts together may have up to 4096 bytes; an answer with more counts as an
/// [`InvalidAnswer`].
///
/// `Debug` hides the subject and the client.
///
/// # Examples
///
/// ```
/// use tollgate::{Timestamp, key::introspect::Claims};
///
/// let claims = Claims::new()
///     .with_subject("ann")
///     .with_plan("gold")
///     .with_scope("read write")
///     .with_expiry(Timestamp::from_nanos(1_767_225_600_000_000_000));
/// assert_eq!(claims.plan(), Some("gold"));
/// assert!(claims.has_scope("write"));
/// assert!(!format!("{claims:?}").contains("ann"));
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Claims {
    subject: Option<Box<str>>,
    client_id: Option<Box<str>>,
    plan: Option<Box<str>>,
    scope: Option<Box<str>>,
    expiry: Option<Timestamp>,
}

/// Makes the setter and the getter of each text.
macro_rules! texts {
    ($($name:ident, $with:ident: $what:literal;)*) => {
        $(
            #[doc = concat!("Sets ", $what, ".")]
            #[must_use]
            pub fn $with(mut self, text: &str) -> Self {
                self.$name = Some(text.into());
                self
            }

            #[doc = concat!("Returns ", $what, ".")]
            pub fn $name(&self) -> Option<&str> {
                self.$name.as_deref()
            }
        )*

        /// Returns the length of all texts, in bytes.
        pub(super) fn len(&self) -> usize {
            [$(self.$name()),*].into_iter().flatten().map(str::len).sum()
        }
    };
}

impl Claims {
    /// Creates the claims of an active token, all of them empty.
    pub fn new() -> Self {
        Self::default()
    }

    texts! {
        subject, with_subject: "the user or machine that the token stands for (`sub`)";
        client_id, with_client_id: "the OAuth client that the token was issued to (`client_id`)";
        plan, with_plan: "the plan, from which a rule is chosen";
        scope, with_scope: "the scopes, separated by blanks (`scope`)";
    }

    /// Sets the instant at which the token expires (`exp`). It is not cached beyond that.
    #[must_use]
    pub fn with_expiry(mut self, at: Timestamp) -> Self {
        self.expiry = Some(at);
        self
    }

    /// Returns the instant at which the token expires (`exp`).
    pub fn expiry(&self) -> Option<Timestamp> {
        self.expiry
    }

    /// Returns `true` if the token has this scope.
    pub fn has_scope(&self, scope: &str) -> bool {
        let mut scopes = self.scope().unwrap_or_default().split(' ');
        scopes.any(|each| each == scope && !scope.is_empty())
    }
}

impl_debug!(
    Claims,
    |it| plan = it.plan,
    scope = it.scope,
    expiry = it.expiry
);
