//! `Debug` for types with parts that cannot be printed, or must not be, as keys and secrets.

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
