//! The error of invalid settings and texts.

use std::fmt;

/// The error of an invalid quota, rule, name, key or network.
///
/// The message says what was wrong, what was expected, and what to do. Parsing
/// errors also have a [column](Self::column).
///
/// # Examples
///
/// ```
/// use tollgate::Quota;
///
/// let error = "100/1x".parse::<Quota>().unwrap_err();
/// assert_eq!(error.column(), Some(6));
/// assert_eq!(
///     error.to_string(),
///     "column 6: unknown unit `x` in the quota `100/1x`: \
///      expected ns, us, ms, s, m, h or d, as in `100/1m`",
/// );
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Error {
    message: Box<str>,
    column: Option<usize>,
    is_newer_state: bool,
}

impl Error {
    /// Creates an error with a message, for algorithms and stores of other crates.
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into().into_boxed_str(),
            column: None,
            is_newer_state: false,
        }
    }

    /// Creates the error of a state in a format of a newer version, for
    /// [codecs](crate::algorithm::Codec).
    ///
    /// A store replaces a damaged state, but not this one. Otherwise two versions that share a
    /// store would reset each other's states with every request.
    pub fn newer_state() -> Self {
        Self {
            is_newer_state: true,
            ..Self::new(
                "the state was written by a newer version of the program: expected a known version; \
                 update this program, or remove the key to reset it",
            )
        }
    }

    /// Returns `true` for a state in a format of a newer version.
    pub fn is_newer_state(&self) -> bool {
        self.is_newer_state
    }

    /// Sets the column of the parsed text, in bytes, starting at 1.
    #[must_use]
    pub fn at_column(mut self, column: usize) -> Self {
        self.column = Some(column);
        self
    }

    /// Returns the column at which parsing stopped, in bytes, starting at 1.
    ///
    /// Returns `None` if no text was parsed.
    pub fn column(&self) -> Option<usize> {
        self.column
    }

    /// Returns the text without the column.
    #[cfg(feature = "config")]
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// Appends to the text.
    #[cfg(feature = "config")]
    pub(crate) fn with_end(mut self, end: &str) -> Self {
        self.message = [&self.message, end].concat().into();
        self
    }

    /// Moves the column right by `bytes`, for a text that is part of another.
    pub(crate) fn shifted(mut self, bytes: usize) -> Self {
        self.column = self.column.map(|column| column + bytes);
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(column) = self.column {
            write!(f, "column {column}: ")?;
        }
        f.write_str(&self.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Error({self})")
    }
}

impl std::error::Error for Error {}

/// Returns the value, or panics with the error's text at the caller's line, for settings that are
/// meant for literals.
///
/// A closure that panics would name its own line: an attribute of its function does not reach it.
#[track_caller]
pub(crate) fn or_panic<T>(result: Result<T, impl fmt::Display>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("{error}"),
    }
}

/// Declares a setting for literals, which panics when its fallible twin fails.
macro_rules! panicking {
    ($(#[$attr:meta])* pub fn $name:ident($it:ident $(, $argument:ident: $Type:ty)*) = $try:ident;) => {
        $(#[$attr])*
        ///
        /// # Panics
        ///
        #[doc = concat!(" When [`", stringify!($try), "`](Self::", stringify!($try), ") fails; meant for literals.")]
        #[must_use]
        #[track_caller]
        pub fn $name($it $(, $argument: $Type)*) -> Self {
            $crate::error::or_panic($it.$try($($argument),*))
        }
    };
}

pub(crate) use panicking;

#[cfg(test)]
mod tests {
    use super::Error;

    #[test]
    fn the_message_of_a_newer_state_is_one_line_without_gaps() {
        let error = Error::newer_state();
        assert!(error.is_newer_state());
        assert!(!error.to_string().contains("  "), "{error}");
    }
}
