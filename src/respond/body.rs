//! The bodies of refusals.

use std::{borrow::Cow, fmt};

use http::response::Parts;

use super::{problem_body::ProblemBody, refusal::Refusal};

/// Makes the body of a refusal.
///
/// This trait is sealed: pass a closure to [`Http::body`](super::Http::body) for a body of your own.
///
/// | | bodies |
/// |---|---|
/// | [`ProblemBody`] | types that are `From<Cow<'static, str>>` |
/// | [`EmptyBody`] | types that are `Default` |
/// | [`BodyFn`] | the type that its closure returns |
///
/// As a bound, for a function that takes any of the three:
///
/// ```
/// use tollgate::respond::{Http, MakeBody};
///
/// fn check<M: MakeBody<String>>(_: &Http<M>) {}
///
/// check(&Http::new());
/// check(&Http::empty());
/// check(&Http::body(|refusal, _| refusal.to_string()));
/// ```
pub trait MakeBody<B>: sealed::Sealed {
    /// Returns the body of `refusal`, and sets the fields that describe it in `parts`.
    #[doc(hidden)]
    fn make(&self, refusal: &Refusal, parts: &mut Parts) -> B;
}

mod sealed {
    pub trait Sealed {}

    impl Sealed for crate::respond::ProblemBody {}
    impl Sealed for super::EmptyBody {}
    impl<F> Sealed for super::BodyFn<F> {}
}

/// An empty body: made by [`Http::empty`](super::Http::empty).
///
/// ```
/// use tollgate::respond::{EmptyBody, Http};
///
/// let respond: Http<EmptyBody> = Http::empty();
/// # let _ = respond;
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EmptyBody;

impl<B: Default> MakeBody<B> for EmptyBody {
    fn make(&self, _: &Refusal, _: &mut Parts) -> B {
        B::default()
    }
}

/// The body that a closure returns: made by [`Http::body`](super::Http::body).
///
/// ```
/// use http::response::Parts;
/// use tollgate::respond::{BodyFn, Http, Refusal};
///
/// fn plain_text() -> Http<BodyFn<fn(&Refusal, &mut Parts) -> String>> {
///     Http::body(|refusal, _| if refusal.is_bodiless() { String::new() } else { refusal.to_string() })
/// }
/// # let _ = plain_text();
/// ```
#[derive(Clone, Copy)]
pub struct BodyFn<F>(pub(super) F);

impl<F, B> MakeBody<B> for BodyFn<F>
where
    F: Fn(&Refusal, &mut Parts) -> B,
{
    fn make(&self, refusal: &Refusal, parts: &mut Parts) -> B {
        (self.0)(refusal, parts)
    }
}

impl<F> fmt::Debug for BodyFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BodyFn").finish_non_exhaustive()
    }
}

impl<B: From<Cow<'static, str>>> MakeBody<B> for ProblemBody {
    fn make(&self, refusal: &Refusal, parts: &mut Parts) -> B {
        self.text(refusal, parts).into()
    }
}
