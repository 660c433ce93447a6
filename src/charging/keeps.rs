//! The state that a request keeps until its response, as a type: the most that one of its limits
//! needs.
//!
//! The step after the admission is a type of the limit (`ChargeAtOnce`, `Reserve`, `LookFirst`),
//! and what a request keeps follows from the types of all limits: `()` for layers without such
//! limits, whose path pays nothing. Bounds that only some layers need, such as a store that is
//! `Send` or a responder that can refuse late, stand on the implementations for those types.

/// One of [`KeepNothing`], [`KeepCharges`] and [`ChargeLater`], each of which includes those before
/// it.
#[doc(hidden)]
pub trait Keeps {
    /// The greater of this one and `Other`.
    type Or<Other: Keeps>: Keeps;

    /// The greater of this one and [`KeepCharges`].
    type OrCharges: Keeps;
}

/// No limit needs the response.
#[doc(hidden)]
#[derive(Debug)]
pub struct KeepNothing;

/// Some charges may be corrected before or by the response.
#[doc(hidden)]
#[derive(Debug)]
pub struct KeepCharges;

/// Some limits charge after the response, and may then refuse it.
#[doc(hidden)]
#[derive(Debug)]
pub struct ChargeLater;

impl Keeps for KeepNothing {
    type Or<Other: Keeps> = Other;
    type OrCharges = KeepCharges;
}

impl Keeps for KeepCharges {
    type Or<Other: Keeps> = Other::OrCharges;
    type OrCharges = Self;
}

impl Keeps for ChargeLater {
    type Or<Other: Keeps> = Self;
    type OrCharges = Self;
}
