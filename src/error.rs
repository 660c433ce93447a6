//! The error of invalid settings.

use std::fmt;

/// An invalid quota, rule, name, key or network.
///
/// The message says what was wrong, what was expected, and what to do. Parsing
/// errors also point at the [column](Self::column).
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
#[derive(Clone, PartialEq, Eq)]
pub struct Error {
    message: Box<str>,
    column: Option<usize>,
    is_newer_state: bool,
}

impl Error {
    /// Returns an error with this message, for algorithms and stores of other crates.
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into().into_boxed_str(),
            column: None,
            is_newer_state: false,
        }
    }

    /// Returns the error of a [codec](crate::algorithm::Codec) that reads a state of a newer version of the program.
    ///
    /// A store replaces damaged states, but not such a state: two versions that share a store would otherwise overwrite each
    /// other's states in turn.
    pub fn newer_state() -> Self {
        Self {
            is_newer_state: true,
            ..Self::new(
                "the state was written by a newer version of the program: expected a version that this one knows; \
                 bring this one up to date, or remove the key to begin afresh",
            )
        }
    }

    /// Returns `true` for a state that a newer version of the program wrote.
    pub fn is_newer_state(&self) -> bool {
        self.is_newer_state
    }

    /// Adds the column of the parsed text that the error is about, in bytes, from 1.
    #[must_use]
    pub fn at_column(mut self, column: usize) -> Self {
        self.column = Some(column);
        self
    }

    /// Returns the column of the text at which parsing stopped, in bytes, from 1; `None` if no text was parsed.
    pub fn column(&self) -> Option<usize> {
        self.column
    }

    /// Moves the column right by `bytes`, for a text that contains the parsed one.
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

#[cfg(test)]
mod tests {
    use super::Error;

    #[test]
    fn a_newer_state_is_told_in_one_line_without_gaps() {
        let error = Error::newer_state();
        assert!(error.is_newer_state());
        assert!(!error.to_string().contains("  "), "{error}");
    }
}
