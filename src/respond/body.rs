//! What refusals carry as their body.

use std::fmt;

use http::response::Parts;

use super::{problem::ProblemBody, refusal::Refusal};

/// Makes the body of a refusal; closed to other crates, who give [`Http::body`](super::Http::body) a closure.
///
/// | | bodies |
/// |---|---|
/// | [`ProblemBody`] | all that are `From<String>` |
/// | [`EmptyBody`] | all that are `Default` |
/// | [`BodyFn`] | what its closure returns |
pub trait MakeBody<B>: sealed::Sealed {
    /// The body of `refusal`, and the fields that describe it in `parts`.
    #[doc(hidden)]
    fn make(&self, refusal: &Refusal, parts: &mut Parts) -> B;
}

mod sealed {
    pub trait Sealed {}

    impl Sealed for crate::respond::ProblemBody {}
    impl Sealed for super::EmptyBody {}
    impl<F> Sealed for super::BodyFn<F> {}
}

/// No body: made by [`Http::empty`](super::Http::empty).
#[derive(Clone, Copy, Debug, Default)]
pub struct EmptyBody;

impl<B: Default> MakeBody<B> for EmptyBody {
    fn make(&self, _: &Refusal, _: &mut Parts) -> B {
        B::default()
    }
}

/// The body that a closure makes: made by [`Http::body`](super::Http::body).
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

impl<B: From<String>> MakeBody<B> for ProblemBody {
    fn make(&self, refusal: &Refusal, parts: &mut Parts) -> B {
        self.text(refusal, parts).into()
    }
}
