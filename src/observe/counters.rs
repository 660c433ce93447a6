//! An observer that counts.
//!
//! An observer is a type, not a trait object, so a layer without one has no code for it. It
//! receives an event for each limit, because operators count by policy. A limit that would have
//! admitted a request which another one refuses has no event: it spent nothing.

use std::time::Duration;

use super::{Event, Observer};
use crate::{
    decision::Verdict,
    key::{Key, MissingKey},
    policy::Policy,
    stats::Counter,
    striped::Striped,
};

/// Counts the events of a layer, merged over its policies.
///
/// An event takes a few nanoseconds: each thread adds to counters of its own, as long as there are
/// not more threads than twice the number of CPUs. Clones share the counts; given to several
/// layers, they count the events of all of them.
///
/// ```
/// use std::convert::Infallible;
/// use http::{Request, Response};
/// use tollgate::{RateLimitLayer, TokenBucket, observe::EventCounters};
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Infallible> {
/// let counters = EventCounters::new();
/// let service = ServiceBuilder::new()
///     .layer(RateLimitLayer::new(TokenBucket::per_minute(2)).observe(counters.clone()))
///     .service(service_fn(async |_: Request<()>| {
///         Ok::<_, Infallible>(Response::new(String::new()))
///     }));
///
/// for _ in 0..5 {
///     service.clone().oneshot(Request::new(())).await?;
/// }
/// let counts = counters.snapshot();
/// assert_eq!((counts.admitted, counts.refused), (2, 3));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "counters count nothing until a layer reports to them"]
pub struct EventCounters {
    counters: Striped<[Counter; EVENT_KINDS]>,
}

/// Declares the snapshot, and the kind of event of each of its fields.
macro_rules! event_counts {
    (
        $(#[$attr:meta])*
        pub struct $Counts:ident {
            $($(#[$field_attr:meta])* $field:ident by $Kind:ident,)*
        }
    ) => {
        $(#[$attr])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub struct $Counts {
            $($(#[$field_attr])* pub $field: u64,)*
        }

        /// The kinds of events that are counted separately.
        #[derive(Clone, Copy, Debug)]
        enum EventKind {
            $($Kind,)*
        }

        const EVENT_KINDS: usize = [$(EventKind::$Kind),*].len();

        impl $Counts {
            /// Reads each count.
            fn read(count: impl Fn(EventKind) -> u64) -> Self {
                Self {
                    $($field: count(EventKind::$Kind),)*
                }
            }
        }
    };
}

event_counts! {
    /// The counts of the events of a layer, a snapshot of [`EventCounters`].
    ///
    /// A layer with several limits reports each limit by itself, so one request may count several
    /// times.
    ///
    /// ```
    /// use tollgate::observe::EventCounts;
    ///
    /// /// The share of decisions that were refusals, in percent.
    /// fn refused(counts: &EventCounts) -> u64 {
    ///     100 * counts.refused / counts.decisions().max(1)
    /// }
    /// # assert_eq!(refused(&EventCounts::default()), 0);
    /// ```
    pub struct EventCounts {
        /// Requests that a limit admitted at once.
        admitted by Admitted,
        /// Requests that a limit admitted after a delay, including those that were dropped before
        /// their turn.
        delayed by Delayed,
        /// Requests that a limit refused.
        refused by Refused,
        /// Requests that the store could not decide, and that a limit let proceed.
        undecided_admitted by UndecidedAdmitted,
        /// Requests that the store could not decide, and that a limit refused.
        undecided_refused by UndecidedRefused,
        /// Requests that all limits of the layer exempted.
        exempt by Exempt,
        /// Requests without a key.
        missing_key by MissingKey,
        /// Charges that were corrected to their actual cost.
        settled by Settled,
        /// Requests that a limit on a dry run would have refused.
        dry_run_refused by DryRunRefused,
        /// Requests that a limit on a dry run would not have refused, including those that the
        /// store could not decide.
        dry_run_passed by DryRunPassed,
    }
}

impl EventCounters {
    /// Creates counters at 0.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the counts so far.
    ///
    /// Each count is exact once its requests are over. Events that happen meanwhile may or may not
    /// be included.
    pub fn snapshot(&self) -> EventCounts {
        EventCounts::read(|kind| self.counters.sum(|counters| &counters[kind as usize]))
    }

    #[inline]
    fn count(&self, kind: EventKind) {
        self.counters.of_this_thread()[kind as usize].add(1);
    }
}

impl Observer for EventCounters {
    #[inline]
    fn admitted(&self, _: &Event<'_>) {
        self.count(EventKind::Admitted);
    }

    #[inline]
    fn delayed(&self, _: &Event<'_>, _: Duration) {
        self.count(EventKind::Delayed);
    }

    #[inline]
    fn refused(&self, _: &Event<'_>) {
        self.count(EventKind::Refused);
    }

    #[inline]
    fn undecided(&self, event: &Event<'_>) {
        self.count(if event.decision().is_admitted() {
            EventKind::UndecidedAdmitted
        } else {
            EventKind::UndecidedRefused
        });
    }

    #[inline]
    fn exempt(&self) {
        self.count(EventKind::Exempt);
    }

    #[inline]
    fn missing_key(&self, _: &MissingKey) {
        self.count(EventKind::MissingKey);
    }

    #[inline]
    fn settled(&self, _: &Policy, _: &Key, _: u64, _: u64) {
        self.count(EventKind::Settled);
    }

    #[inline]
    fn dry_run(&self, event: &Event<'_>) {
        self.count(if event.decision().verdict() == Verdict::Refuse {
            EventKind::DryRunRefused
        } else {
            EventKind::DryRunPassed
        });
    }
}

impl EventCounts {
    /// Returns the number of decisions: admitted, delayed, refused and undecided. Limits on a dry
    /// run are not included.
    pub const fn decisions(&self) -> u64 {
        // Sums wrap as the counters do.
        self.admitted
            .wrapping_add(self.delayed)
            .wrapping_add(self.refused)
            .wrapping_add(self.undecided())
    }

    /// Returns the number of requests that the store could not decide, whether they proceeded or
    /// not.
    pub const fn undecided(&self) -> u64 {
        self.undecided_admitted.wrapping_add(self.undecided_refused)
    }
}
