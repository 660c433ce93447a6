//! The results of calls to a store, by its error type.

use std::convert::Infallible;

use super::Error;

/// An error type of a store, which determines what the calls of a [`Limiter`](crate::Limiter) return.
///
/// | error | a call that returns a `T` returns |
/// |---|---|
/// | [`Infallible`]: `Local`, or any store with `fail_open`, `fail_closed` or `fall_back_to` | `T` |
/// | [`store::Error`](Error): `Redis`, `Memcached` and others | `Result<T, store::Error>` |
///
/// Implement it for the error type of a store of your own that is neither.
///
/// ```
/// use tollgate::store::MayFail;
///
/// struct Offline;
///
/// impl MayFail for Offline {
///     type Output<T> = Result<T, Offline>;
///
///     fn output<T>(result: Result<T, Offline>) -> Result<T, Offline> {
///         result
///     }
/// }
///
/// assert_eq!(std::convert::Infallible::output(Ok(5)), 5);
/// assert!(Offline::output::<u32>(Err(Offline)).is_err());
/// ```
pub trait MayFail: Sized {
    /// The return type of a call that returns a `T` if it succeeds.
    type Output<T>;

    /// Converts the result of a call.
    fn output<T>(result: Result<T, Self>) -> Self::Output<T>;
}

impl MayFail for Infallible {
    type Output<T> = T;

    fn output<T>(result: Result<T, Self>) -> T {
        match result {
            Ok(value) => value,
            Err(never) => match never {},
        }
    }
}

impl MayFail for Error {
    type Output<T> = Result<T, Self>;

    fn output<T>(result: Result<T, Self>) -> Result<T, Self> {
        result
    }
}
