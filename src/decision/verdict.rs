//! The verdict of a decision.

use std::time::Duration;

/// The verdict of a [`Decision`](crate::Decision).
///
/// # Examples
///
/// ```
/// use tollgate::Verdict;
///
/// fn log(verdict: Verdict) -> String {
///     match verdict {
///         Verdict::Allow => "allowed".to_owned(),
///         Verdict::Delay(wait) => format!("allowed in {wait:?}"),
///         Verdict::Refuse => "refused".to_owned(),
///         other => format!("{other:?}"),
///     }
/// }
///
/// assert_eq!(log(Verdict::Undecided { admitted: true }), "Undecided { admitted: true }");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Verdict {
    /// The request proceeds at once.
    Allow,
    /// The request proceeds after a wait. Its cost is spent already.
    Delay(Duration),
    /// The request is refused. Nothing was spent.
    Refuse,
    /// The store could not decide.
    Undecided {
        /// Set if the application chose to let such requests proceed.
        admitted: bool,
    },
    /// No effect on the request, because the limit is on a [dry run](crate::Limit::dry_run).
    DryRun {
        /// Set if the limit would have admitted the request, at once or after a delay. Then its cost is spent.
        admitted: bool,
    },
}

/// A [`Verdict`] without its delay, which keeps the often copied decision small.
// A whole word, as the class is: it is slow to copy halves as a word right after they were written.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub(super) enum VerdictKind {
    // Those that admit the request come first, so that one comparison finds them.
    Allow,
    Delay,
    /// Undecided, and the request proceeds.
    FailedOpen,
    /// `Allow` on a dry run.
    DryRunAllow,
    /// `Delay` on a dry run.
    DryRunDelay,
    /// `Refuse` on a dry run.
    DryRunRefuse,
    Refuse,
    /// Undecided, and the request is refused.
    FailedClosed,
    /// Undecided and refused, because the store does not support the call.
    Unsupported,
}
