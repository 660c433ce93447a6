//! When a limit charges a request.

use super::{
    CarryHandle, ChargeHandle,
    keeps::{ChargeLater, KeepCharges, KeepNothing, Keeps},
};

/// When a limit charges a request: [`ChargeAtOnce`], [`Reserve`] or [`LookFirst`].
#[doc(hidden)]
pub trait Charging {
    /// Set if the limit charges after the response.
    const LOOKS_FIRST: bool;

    /// Set if the layer settles the charge, so that nobody may take it out of the outcome.
    const SETTLES: bool;

    /// The state that a request keeps until its response.
    type Keeps: Keeps;
}

/// The effect of a request and its response on a charge.
#[doc(hidden)]
pub trait ByResponse<Req, Res>: Charging {
    /// Returns `true` if a request with this response is charged.
    fn is_charged(&self, res: &Res) -> bool;

    /// Puts the handle of a charge into its request if the handler may settle it. Returns the
    /// handle if the response may settle it, too.
    fn hand_over(&self, req: &mut Req, handle: ChargeHandle) -> Option<ChargeHandle>;
}

/// Charges each request that is admitted: the default.
///
/// ```
/// use tollgate::{ChargeAtOnce, Cost, Enforced, FixedRule, Limit, TokenBucket, key::Global};
///
/// let limit: Limit<TokenBucket, FixedRule, Global, Cost, Enforced, ChargeAtOnce> = Limit::new(TokenBucket::per_second(10));
/// # let _ = limit;
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChargeAtOnce;

impl Charging for ChargeAtOnce {
    const LOOKS_FIRST: bool = false;
    const SETTLES: bool = false;
    type Keeps = KeepNothing;
}

impl<Req, Res> ByResponse<Req, Res> for ChargeAtOnce {
    fn is_charged(&self, _: &Res) -> bool {
        true
    }

    fn hand_over(&self, _: &mut Req, _: ChargeHandle) -> Option<ChargeHandle> {
        None
    }
}

/// Charges each request that is admitted, and corrects the charge afterwards.
///
/// Made by [`Limit::charge_handle`](crate::Limit::charge_handle) and
/// [`Limit::charge_if`](crate::Limit::charge_if).
///
/// ```
/// use tollgate::{Always, Cost, Enforced, FixedRule, Limit, Reserve, TokenBucket, Visible, key::Global};
///
/// let limit: Limit<TokenBucket, FixedRule, Global, Cost, Enforced, Reserve<Always, Visible>> =
///     Limit::new(TokenBucket::per_second(10)).charge_handle();
/// # let _ = limit;
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Reserve<F, V> {
    condition: F,
    visibility: V,
}

impl<F, V> Charging for Reserve<F, V> {
    const LOOKS_FIRST: bool = false;
    const SETTLES: bool = true;
    type Keeps = KeepCharges;
}

impl<Req, Res, F: ChargeIf<Res>, V: Visibility<Req>> ByResponse<Req, Res> for Reserve<F, V> {
    fn is_charged(&self, res: &Res) -> bool {
        self.condition.is_charged(res)
    }

    fn hand_over(&self, req: &mut Req, handle: ChargeHandle) -> Option<ChargeHandle> {
        if !V::VISIBLE {
            return Some(handle);
        }
        // Only a handle that two may settle needs to be shared.
        let kept = (!F::ALWAYS).then(|| handle.clone());
        self.visibility.hand_over(req, handle);
        kept
    }
}

/// Looks before the request and charges after its response. Made by
/// [`Limit::charge_after`](crate::Limit::charge_after).
///
/// ```
/// use http::{Response, StatusCode};
/// use tollgate::{Limit, TokenBucket};
///
/// let failures = Limit::new(TokenBucket::per_hour(3))
///     .charge_after(|response: &Response<String>| response.status() == StatusCode::UNAUTHORIZED);
/// # let _ = failures;
/// ```
#[derive(Clone, Copy, Debug)]
pub struct LookFirst<F> {
    condition: F,
}

impl<F> LookFirst<F> {
    pub(crate) fn new(condition: F) -> Self {
        Self { condition }
    }
}

impl<F> Charging for LookFirst<F> {
    const LOOKS_FIRST: bool = true;
    // On a dry run, where it reserves.
    const SETTLES: bool = true;
    type Keeps = ChargeLater;
}

impl<Req, Res, F: ChargeIf<Res>> ByResponse<Req, Res> for LookFirst<F> {
    fn is_charged(&self, res: &Res) -> bool {
        self.condition.is_charged(res)
    }

    // Only a dry run charges before the response. Then the response gives back.
    fn hand_over(&self, _: &mut Req, handle: ChargeHandle) -> Option<ChargeHandle> {
        Some(handle)
    }
}

/// Decides by a response if its request is charged. Implemented by closures `Fn(&Res) -> bool`, and
/// by [`Always`].
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

/// Charges every request, whatever its response.
///
/// ```
/// use tollgate::{Always, ChargeIf};
///
/// assert!(Always.is_charged(&"any response"));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Always;

impl<Res> ChargeIf<Res> for Always {
    const ALWAYS: bool = true;

    fn is_charged(&self, _: &Res) -> bool {
        true
    }
}

/// The visibility of a charge to the handler: [`Hidden`] or [`Visible`].
#[doc(hidden)]
pub trait Visibility<Req> {
    const VISIBLE: bool;

    fn hand_over(&self, req: &mut Req, handle: ChargeHandle);
}

/// The handler cannot settle the charge.
///
/// ```
/// use tollgate::{Hidden, Reserve};
///
/// type ByResponse<F> = Reserve<F, Hidden>;
/// # let _: Option<ByResponse<fn(&()) -> bool>> = None;
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hidden;

impl<Req> Visibility<Req> for Hidden {
    const VISIBLE: bool = false;

    fn hand_over(&self, _: &mut Req, _: ChargeHandle) {}
}

/// The handler may settle the charge by a [`ChargeHandle`].
///
/// ```
/// use tollgate::{Always, Reserve, Visible};
///
/// type ByHandler = Reserve<Always, Visible>;
/// # let _: Option<ByHandler> = None;
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Visible;

impl<Req: CarryHandle> Visibility<Req> for Visible {
    const VISIBLE: bool = true;

    fn hand_over(&self, req: &mut Req, handle: ChargeHandle) {
        req.carry(handle);
    }
}

/// Settings to which a handle can be added.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "a limit that charges after the response has no charge to hand over",
    note = "use `.charge_if(…)` instead of `.charge_after(…)`: it charges first, and gives back by the response"
)]
// The result is a parameter, because the compiler shows the message of a bound on a type's own
// parameter only if the method returns no projection of it.
pub trait HandOver<Handed> {
    fn handed_over(self) -> Handed;
}

impl HandOver<Reserve<Always, Visible>> for ChargeAtOnce {
    fn handed_over(self) -> Reserve<Always, Visible> {
        Reserve {
            condition: Always,
            visibility: Visible,
        }
    }
}

impl<F, V> HandOver<Reserve<F, Visible>> for Reserve<F, V> {
    fn handed_over(self) -> Reserve<F, Visible> {
        Reserve {
            condition: self.condition,
            visibility: Visible,
        }
    }
}

/// Settings to which a condition can be added.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "this limit has a condition already",
    note = "a limit has one of `.charge_if(…)` and `.charge_after(…)`: join both conditions in one closure"
)]
pub trait AddCondition<F, Conditional> {
    fn with_condition(self, condition: F) -> Conditional;
}

impl<F> AddCondition<F, Reserve<F, Hidden>> for ChargeAtOnce {
    fn with_condition(self, condition: F) -> Reserve<F, Hidden> {
        Reserve {
            condition,
            visibility: Hidden,
        }
    }
}

impl<F, V> AddCondition<F, Reserve<F, V>> for Reserve<Always, V> {
    fn with_condition(self, condition: F) -> Reserve<F, V> {
        Reserve {
            condition,
            visibility: self.visibility,
        }
    }
}

/// Settings that a candidate for a limit's rule takes over.
#[doc(hidden)]
pub trait ForCandidate {
    type Candidate: Charging;

    fn for_candidate(&self) -> Self::Candidate;
}

impl ForCandidate for ChargeAtOnce {
    type Candidate = Self;

    fn for_candidate(&self) -> Self {
        Self
    }
}

/// The handle of the limit settles the candidate, which has none of its own.
impl<F: Clone, V> ForCandidate for Reserve<F, V> {
    type Candidate = Reserve<F, Hidden>;

    fn for_candidate(&self) -> Self::Candidate {
        Reserve {
            condition: self.condition.clone(),
            visibility: Hidden,
        }
    }
}

impl<F: Clone> ForCandidate for LookFirst<F> {
    type Candidate = Reserve<F, Hidden>;

    fn for_candidate(&self) -> Self::Candidate {
        Reserve {
            condition: self.condition.clone(),
            visibility: Hidden,
        }
    }
}
