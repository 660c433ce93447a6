//! What is wrong with a setting, and what to write instead.

use std::fmt;

/// A quota, rule, name, key or network that cannot be.
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
    /// An error with a message of its own, for algorithms and stores written elsewhere.
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into().into_boxed_str(),
            column: None,
            is_newer_state: false,
        }
    }

    /// A state in a form that a newer version of the program wrote, for [codecs](crate::algorithm::Codec).
    ///
    /// A store does not replace it, as it replaces what is damaged: two versions that share a store would
    /// take turns, and each of them would begin afresh each time.
    pub fn newer_state() -> Self {
        Self {
            is_newer_state: true,
            ..Self::new(
                "the state was written by a newer version of the program: expected a version that this one knows; \
                 bring this one up to date, or remove the key to begin afresh",
            )
        }
    }

    /// Whether this is a state in a form that a newer version of the program wrote.
    pub fn is_newer_state(&self) -> bool {
        self.is_newer_state
    }

    /// The same error, pointing at a column of the text that was parsed.
    ///
    /// Columns are bytes and begin at 1.
    #[must_use]
    pub fn at_column(mut self, column: usize) -> Self {
        self.column = Some(column);
        self
    }

    /// The column of the text at which parsing stopped, in bytes, beginning at 1.
    ///
    /// `None` where no text was parsed.
    pub fn column(&self) -> Option<usize> {
        self.column
    }

    /// The same error seen from a text in which the parsed one begins `bytes` further right.
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
