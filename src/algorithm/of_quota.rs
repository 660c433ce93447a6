//! What all rules share that one quota makes.

/// Constructors by a literal amount for each of the common periods, and from a quota.
macro_rules! of_quota {
    ($Rule:ident, $second:literal, $minute:literal, $hour:literal, $day:literal) => {
        impl $Rule {
            #[doc = $second]
            ///
            /// # Panics
            ///
            /// When the amount is 0 or above 2⁴⁰.
            pub const fn per_second(amount: u64) -> Self {
                Self::new($crate::quota::Quota::per_second(amount))
            }

            #[doc = $minute]
            ///
            /// # Panics
            ///
            /// When the amount is 0 or above 2⁴⁰.
            pub const fn per_minute(amount: u64) -> Self {
                Self::new($crate::quota::Quota::per_minute(amount))
            }

            #[doc = $hour]
            ///
            /// # Panics
            ///
            /// When the amount is 0 or above 2⁴⁰.
            pub const fn per_hour(amount: u64) -> Self {
                Self::new($crate::quota::Quota::per_hour(amount))
            }

            #[doc = $day]
            ///
            /// # Panics
            ///
            /// When the amount is 0 or above 2⁴⁰.
            pub const fn per_day(amount: u64) -> Self {
                Self::new($crate::quota::Quota::per_day(amount))
            }
        }

        impl From<$crate::quota::Quota> for $Rule {
            fn from(quota: $crate::quota::Quota) -> Self {
                Self::new(quota)
            }
        }
    };
}

pub(super) use of_quota;
