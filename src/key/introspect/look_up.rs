//! The look-up of a token: a trait, which functions implement.

use std::{error::Error, fmt, future::Future};

use super::Claims;

/// Any error of a look-up.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// Looks tokens up: [`Endpoint`](super::Endpoint), or any async function.
///
/// The future is a task of its own, which ends at the deadline.
///
/// # Examples
///
/// ```
/// use tollgate::key::introspect::{BoxError, Claims, Introspect, Token};
///
/// async fn look_up(token: Token) -> Result<Option<Claims>, BoxError> {
///     // Asks a database; `None` is a token that is unknown, expired or revoked.
///     Ok((token.expose() == "s3cret").then(|| Claims::new().with_subject("ann").with_plan("gold")))
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
    /// An error counts as a failed look-up, and says nothing about the token. Its text is logged, with the token taken out. Return
    /// [`InvalidAnswer`] for an answer that cannot be read, which is counted apart.
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

/// A bearer token on its way to its look-up. `Debug` hides it.
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
/// ```
/// use tollgate::key::introspect::InvalidAnswer;
///
/// let error = InvalidAnswer::new("`plan` is a number: expected a text");
/// assert_eq!(error.to_string(), "invalid answer: `plan` is a number: expected a text");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidAnswer(Box<str>);

impl InvalidAnswer {
    /// Creates an error that says what was wrong and what was expected, without parts of the answer.
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
