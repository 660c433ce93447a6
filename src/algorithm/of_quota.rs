//! The builders that all rules of a single quota share.

/// Builders by an amount for each of the common periods, and the conversion from a quota.
///
/// Behind `try`, a rule whose `try_new` can refuse a quota.
macro_rules! of_quota {
    ($Rule:ident, $second:literal, $minute:literal, $hour:literal, $day:literal) => {
        of_quota! {
            @builders $Rule [const] "When the amount is 0 or above 2⁴⁰.",
            per_second $second, per_minute $minute, per_hour $hour, per_day $day
        }

        impl From<$crate::quota::Quota> for $Rule {
            fn from(quota: $crate::quota::Quota) -> Self {
                Self::new(quota)
            }
        }
    };
    (try $Rule:ident, $second:literal, $minute:literal, $hour:literal, $day:literal) => {
        of_quota! {
            @builders $Rule [] "When the amount is 0 or above 2⁴⁰, or [`try_new`](Self::try_new) fails.",
            per_second $second, per_minute $minute, per_hour $hour, per_day $day
        }

        impl TryFrom<$crate::quota::Quota> for $Rule {
            type Error = $crate::error::Error;

            fn try_from(quota: $crate::quota::Quota) -> Result<Self, Self::Error> {
                Self::try_new(quota)
            }
        }
    };
    (@builders $Rule:ident $const:tt $panics:literal, $($builder:ident $summary:literal),+) => {
        impl $Rule {
            $(of_quota! { @builder $const $builder $summary $panics })+
        }
    };
    (@builder [$($const:ident)?] $builder:ident $summary:literal $panics:literal) => {
        #[doc = $summary]
        ///
        /// # Panics
        ///
        #[doc = $panics]
        #[track_caller]
        pub $($const)? fn $builder(amount: u64) -> Self {
            Self::new($crate::quota::Quota::$builder(amount))
        }
    };
}

pub(super) use of_quota;
