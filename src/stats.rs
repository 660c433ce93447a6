//! Counters, and the public snapshots that show them.
//!
//! A count is declared once: one entry of [`stats!`] is its counter, the field of the snapshot, its
//! documentation, and its metric. The first paragraph of the documentation describes the metric,
//! too.

use std::sync::atomic::{AtomicU64, Ordering};

/// A counter that the clones of a store or a layer share.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    // Relaxed throughout: a count is read for a report and orders nothing.
    #[inline]
    pub(crate) fn add(&self, count: u64) {
        if count > 0 {
            self.0.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// Adds one, and returns the count with it.
    pub(crate) fn increment(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Declares the public statistics of a store or a layer, and its counters, so that a count is one
/// entry.
///
/// Fields under `counted` have a [`Counter`] of their own; those under `given` are parameters of
/// `read`. The metrics are those of [`snapshot!`].
macro_rules! stats {
    (
        $(#[$stats_attr:meta])*
        pub struct $Stats:ident {
            counted { $(
                $(#[doc = $counted_doc:literal])+
                $counted:ident $(= $counted_metric:literal $([$($counted_label:tt)*])?)?,
            )* }
            given { $(
                $(#[doc = $given_doc:literal])+
                $given:ident: $Given:ty $(= $given_metric:literal $([$($given_label:tt)*])?)?,
            )* }
        }
        $(#[$counters_attr:meta])*
        struct $Counters:ident;
    ) => {
        $crate::stats::snapshot! {
            $(#[$stats_attr])*
            pub struct $Stats {
                $(
                    $(#[doc = $counted_doc])+
                    $counted: u64 $(= $counted_metric $([$($counted_label)*])?)?,
                )*
                $(
                    $(#[doc = $given_doc])+
                    $given: $Given $(= $given_metric $([$($given_label)*])?)?,
                )*
            }
        }

        $(#[$counters_attr])*
        #[derive(Debug, Default)]
        pub(super) struct $Counters {
            $(pub(super) $counted: $crate::stats::Counter,)*
        }

        impl $Counters {
            pub(super) fn read(&self, $($given: $Given),*) -> $Stats {
                $Stats {
                    $($counted: self.$counted.get(),)*
                    $($given,)*
                }
            }
        }
    };
}

/// Declares public statistics whose fields are computed, and their metrics:
///
/// - `field: u64 = "name",` is a metric of its own. The first paragraph of the field's
///   documentation describes it, so it has no links.
/// - `field: u64 = "name"["key" = "value"],` is the series of a metric with this label. The list in
///   `observe` describes the metric, as several fields share it.
/// - `field: u64 = "name"[],` is the series without a label of its own, of such a metric.
/// - `field: u64,` is not published.
macro_rules! snapshot {
    (
        $(#[$attr:meta])*
        pub struct $Snapshot:ident { $(
            $(#[doc = $doc:literal])+
            $field:ident: $Type:ty $(= $metric:literal $([$($label:tt)*])?)?,
        )* }
    ) => {
        $(#[$attr])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct $Snapshot {
            $(
                $(#[doc = $doc])+
                pub $field: $Type,
            )*
        }

        #[cfg(feature = "metrics")]
        impl $Snapshot {
            /// The series of each field, none or one.
            pub(crate) const SERIES: &'static [&'static [$crate::stats::Series<Self>]] = &[$(
                $crate::stats::series!($field [$($doc)+] $($metric $([$($label)*])?)?),
            )*];
        }
    };
}

/// A field of a snapshot as a time series of a metric.
#[cfg(feature = "metrics")]
pub(crate) struct Series<T> {
    pub(crate) metric: &'static str,
    /// The label that tells apart the fields that share the metric.
    pub(crate) label: Option<(&'static str, &'static str)>,
    /// The documentation of the field, which describes the metric, unless other fields share it.
    pub(crate) doc: Option<&'static str>,
    pub(crate) read: fn(&T) -> u64,
}

/// Makes the list of the series of one field.
#[cfg(feature = "metrics")]
macro_rules! series {
    ($field:ident $doc:tt) => {
        &[]
    };
    ($field:ident [$($doc:literal)+] $metric:literal) => {
        $crate::stats::series!(@ $field, $metric, None, Some(concat!($($doc, "\n"),+)))
    };
    ($field:ident $doc:tt $metric:literal []) => {
        $crate::stats::series!(@ $field, $metric, None, None)
    };
    ($field:ident $doc:tt $metric:literal [$key:literal = $value:literal]) => {
        $crate::stats::series!(@ $field, $metric, Some(($key, $value)), None)
    };
    (@ $field:ident, $metric:literal, $label:expr, $doc:expr) => {
        &[$crate::stats::Series {
            metric: $metric,
            label: $label,
            doc: $doc,
            read: |snapshot| u64::try_from(snapshot.$field).unwrap_or(u64::MAX),
        }]
    };
}

#[cfg(feature = "metrics")]
pub(crate) use series;
pub(crate) use {snapshot, stats};
