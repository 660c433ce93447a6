//! `Debug` and `Clone` where `derive` would print what must be hidden, as keys and secrets, or ask
//! too much of a type's parameters.

/// Implements `Debug` by a type's name and the values that are listed, as `Name { field: 1, .. }`.
///
/// The type's parameters have no bounds unless they stand in front of it.
macro_rules! impl_debug {
    (
        [$($bounds:tt)*] $Type:ident $(<$($parameter:ident),+>)?
        $(, |$this:ident| $($field:ident = $value:expr),+)?
    ) => {
        impl<$($bounds)*> std::fmt::Debug for $Type $(<$($parameter),+>)? {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                $(let $this = self;)?
                f.debug_struct(stringify!($Type))
                    $($(.field(stringify!($field), &$value))+)?
                    .finish_non_exhaustive()
            }
        }
    };
    ($Type:ident $(<$($parameter:ident),+>)? $(, $($fields:tt)+)?) => {
        impl_debug!([$($($parameter),+)?] $Type $(<$($parameter),+>)? $(, $($fields)+)?);
    };
}

/// Implements `Clone` by the clones of all fields.
///
/// The type's parameters have no bounds unless they stand in front of it.
macro_rules! impl_clone {
    (
        [$($bounds:tt)*] $Type:ident $(<$($parameter:ident),+>)?,
        { $($field:tt),+ $(,)? }
    ) => {
        impl<$($bounds)*> Clone for $Type $(<$($parameter),+>)? {
            fn clone(&self) -> Self {
                Self { $($field: self.$field.clone()),+ }
            }
        }
    };
    ($Type:ident $(<$($parameter:ident),+>)?, { $($fields:tt)+ }) => {
        impl_clone!([$($($parameter),+)?] $Type $(<$($parameter),+>)?, { $($fields)+ });
    };
}
