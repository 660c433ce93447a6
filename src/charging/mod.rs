//! Charges that are corrected after the request was admitted: by its handler, its response, or the
//! end of its body.
//!
//! The type of a limit has one parameter for it: `()`, [`Reserve`], [`HandOver`] or [`LookFirst`].
//! It is a type and no value, because it brings bounds that only such limits need: a request that
//! can carry a handle, a responder that can refuse late.

mod handle;
mod usage;

pub(crate) use self::handle::{ChargedLimit, SettleCharges};
pub use self::{
    handle::{CarryHandle, ChargeHandle, Settling},
    usage::Usage,
};

/// Charges each request that is admitted, and gives back by its response. Made by
/// [`Limit::charge_if`](crate::Limit::charge_if).
///
/// ```
/// use http::Response;
/// use tollgate::{By, Limit, Reserve, TokenBucket, key::Global};
///
/// let limit: Limit<TokenBucket, By<Global>, Reserve<fn(&Response<String>) -> bool>> =
///     Limit::new(TokenBucket::per_second(10))
///         .charge_if(|response| response.status().is_success());
/// # let _ = limit;
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Reserve<F> {
    pub(crate) condition: F,
}

/// Charges each request that is admitted, and lets its handler correct the charge. Made by
/// [`Limit::charge_handle`](crate::Limit::charge_handle).
///
/// With a condition of [`charge_if`](crate::Limit::charge_if), `F`, the response may give back,
/// too.
///
/// ```
/// use tollgate::{By, Limit, TokenBucket, HandOver, key::Global};
///
/// let limit: Limit<TokenBucket, By<Global>, HandOver> =
///     Limit::new(TokenBucket::per_second(10)).charge_handle();
/// # let _ = limit;
/// ```
#[derive(Clone, Copy, Debug)]
pub struct HandOver<F = ()> {
    pub(crate) condition: F,
}

/// Looks before the request and charges after its response. Made by
/// [`Limit::charge_after`](crate::Limit::charge_after).
///
/// ```
/// use http::{Response, StatusCode};
/// use tollgate::{By, Limit, TokenBucket, LookFirst, key::Global};
///
/// let failures: Limit<TokenBucket, By<Global>, LookFirst<fn(&Response<String>) -> bool>> =
///     Limit::new(TokenBucket::per_hour(3))
///         .charge_after(|response| response.status() == StatusCode::UNAUTHORIZED);
/// # let _ = failures;
/// ```
#[derive(Clone, Copy, Debug)]
pub struct LookFirst<F> {
    pub(crate) condition: F,
}

/// Decides by a response if its request is charged. Implemented by closures `Fn(&Res) -> bool`, and
/// by `()`, which charges every request.
///
/// ```
/// use http::{Response, StatusCode};
/// use tollgate::{ChargeIf, Limit, TokenBucket};
///
/// /// Does not charge responses from a cache.
/// #[derive(Clone)]
/// struct Uncached;
///
/// impl<B> ChargeIf<Response<B>> for Uncached {
///     fn is_charged(&self, response: &Response<B>) -> bool {
///         !response.headers().contains_key("x-cache-hit")
///     }
/// }
///
/// assert!(Uncached.is_charged(&Response::new(())));
/// let limit = Limit::new(TokenBucket::per_minute(100)).charge_if(Uncached);
/// # let _ = limit;
/// ```
pub trait ChargeIf<Res> {
    /// Set if every request is charged.
    #[doc(hidden)]
    const ALWAYS: bool = false;

    /// Returns `true` if the request of this response is charged.
    fn is_charged(&self, res: &Res) -> bool;
}

impl<Res, F: Fn(&Res) -> bool> ChargeIf<Res> for F {
    fn is_charged(&self, res: &Res) -> bool {
        self(res)
    }
}

impl<Res> ChargeIf<Res> for () {
    const ALWAYS: bool = true;

    fn is_charged(&self, _: &Res) -> bool {
        true
    }
}

/// The effect of a request and its response on a charge.
#[doc(hidden)]
pub trait Settle<Req, Res> {
    /// Returns `true` if a request with this response is charged.
    fn is_charged(&self, res: &Res) -> bool;

    /// Puts the handle of a charge into its request if the handler may settle it. Returns the
    /// handle if the response may settle it, too.
    fn hand_over(&self, _: &mut Req, handle: ChargeHandle) -> Option<ChargeHandle> {
        Some(handle)
    }
}

impl<Req, Res> Settle<Req, Res> for () {
    fn is_charged(&self, _: &Res) -> bool {
        true
    }
}

impl<Req, Res, F: ChargeIf<Res>> Settle<Req, Res> for Reserve<F> {
    fn is_charged(&self, res: &Res) -> bool {
        self.condition.is_charged(res)
    }
}

// On a dry run it reserves.
impl<Req, Res, F: ChargeIf<Res>> Settle<Req, Res> for LookFirst<F> {
    fn is_charged(&self, res: &Res) -> bool {
        self.condition.is_charged(res)
    }
}

impl<Req: CarryHandle, Res, F: ChargeIf<Res>> Settle<Req, Res> for HandOver<F> {
    fn is_charged(&self, res: &Res) -> bool {
        self.condition.is_charged(res)
    }

    fn hand_over(&self, req: &mut Req, handle: ChargeHandle) -> Option<ChargeHandle> {
        // Only a handle that two may settle needs to be shared.
        let kept = (!F::ALWAYS).then(|| handle.clone());
        req.carry(handle);
        kept
    }
}
