//! The role of an ask.

/// The role of an ask: the store charges it, looks at it, or charges it without effect.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Charged, together with the others of this role or not at all.
    Acquire,
    /// Looked at, and charged later.
    Look,
    /// Charged by itself, without effect on the request.
    DryRun,
}
