//! The claims of a token.

use std::fmt;

use crate::time::Timestamp;

/// What the authorization server says about an active token: the response of RFC 7662 §2.2, as far as a limit needs it.
///
/// All texts together may have up to 4096 bytes; an answer with more counts as a failed look-up.
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
    /// Creates the claims of an active token of which nothing else is known.
    pub fn new() -> Self {
        Self::default()
    }

    texts! {
        subject, with_subject: "the user or machine that the token stands for (`sub`)";
        client_id, with_client_id: "the OAuth client that the token was issued to (`client_id`)";
        plan, with_plan: "the plan, from which a rule is chosen";
        scope, with_scope: "the scopes, separated by blanks (`scope`)";
    }

    /// Sets the instant from which on the token is invalid (`exp`). It is not cached any longer.
    #[must_use]
    pub fn with_expiry(mut self, at: Timestamp) -> Self {
        self.expiry = Some(at);
        self
    }

    /// Returns the instant from which on the token is invalid (`exp`).
    pub fn expiry(&self) -> Option<Timestamp> {
        self.expiry
    }

    /// Returns `true` if the token has this scope.
    pub fn has_scope(&self, scope: &str) -> bool {
        let mut scopes = self.scope().unwrap_or_default().split(' ');
        scopes.any(|each| each == scope && !scope.is_empty())
    }
}

impl fmt::Debug for Claims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claims")
            .field("plan", &self.plan)
            .field("scope", &self.scope)
            .field("expiry", &self.expiry)
            .finish_non_exhaustive()
    }
}
