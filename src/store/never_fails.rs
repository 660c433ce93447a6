//! Proof that a store cannot fail.

use std::convert::Infallible;

/// An error type without values: the error of a store that cannot fail.
///
/// A layer takes only such stores. [`StoreExt`](super::StoreExt) makes one of any other. Implemented for [`Infallible`] alone.
///
/// ```
/// use std::convert::Infallible;
/// use tollgate::{TokenBucket, store::{Local, NeverFails, Store}};
///
/// fn cannot_fail<Rule, S: Store<Rule, Error: NeverFails>>(_: &S) {}
/// cannot_fail::<TokenBucket, _>(&Local::new());
///
/// let ok: Result<u32, Infallible> = Ok(5);
/// assert_eq!(ok.unwrap_or_else(NeverFails::never), 5);
/// ```
#[diagnostic::on_unimplemented(
    message = "expected a store that cannot fail, found one that fails with `{Self}`",
    label = "this store can fail",
    note = "`.fail_open()` admits requests while the store fails, `.fail_closed()` refuses them with 503, \
            `.fall_back_to(local).share(1, nodes)` decides by a local store; all come from \
            `tollgate::store::StoreExt`, which is in the prelude"
)]
pub trait NeverFails: sealed::Sealed {
    /// Converts the error, of which there is none, into any type.
    fn never<T>(self) -> T;
}

impl NeverFails for Infallible {
    fn never<T>(self) -> T {
        match self {}
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for std::convert::Infallible {}
}
