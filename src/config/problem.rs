//! Mistakes of a file, all at once, each with its place.

use std::fmt;

/// A line and a column of a text, both from 1; columns count characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Place {
    pub(super) line: usize,
    pub(super) column: usize,
}

/// A mistake in a file of limits, or a warning about it: where it is, what is wrong, what was
/// expected, and what to do.
///
/// ```
/// use tollgate::config::LimitsFile;
///
/// let text = r#"
/// [limits]
/// api = { rule = "token-bukket 5/1m" }
///
/// [default]
/// limits = ["api"]
/// "#;
/// let problems = text.parse::<LimitsFile>().unwrap_err();
/// let problem = problems.iter().next().ok_or("no problem")?;
/// assert_eq!((problem.line(), problem.column()), (Some(3), Some(17)));
/// assert_eq!(problem.path(), "limits.api.rule");
/// assert!(problem.to_string().contains("`token-bucket`"));
/// # Ok::<(), &str>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub(super) place: Option<Place>,
    path: String,
    text: String,
}

impl Problem {
    pub(super) fn new(
        place: Option<Place>,
        path: impl Into<String>,
        text: impl Into<String>,
    ) -> Self {
        Self {
            place,
            path: path.into(),
            text: text.into(),
        }
    }

    /// Returns the line, from 1; `None` if the format of the file has no places.
    pub fn line(&self) -> Option<usize> {
        self.place.map(|place| place.line)
    }

    /// Returns the column in characters, from 1; `None` if the format of the file has no places.
    pub fn column(&self) -> Option<usize> {
        self.place.map(|place| place.column)
    }

    /// Returns the path of the value in the file, as in `limits.api.rule` or `routes[2].match`;
    /// empty for the whole file.
    pub fn path(&self) -> &str {
        &self.path
    }
}

/// The line and the column if there are any, the path, and the text.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(Place { line, column }) = self.place {
            write!(f, "{line}:{column}: ")?;
        }
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.text)
    }
}

/// All mistakes of a file of limits, in the order of their places.
///
/// `Display` writes one on each line.
///
/// ```
/// use tollgate::config::LimitsFile;
///
/// let text = "[limits]\napi = { rule = \"token-bucket 0/1m\", kee = \"global\" }\n";
/// let problems = text.parse::<LimitsFile>().unwrap_err();
/// // The rule, the unknown word, and the missing `[default]`.
/// assert_eq!(problems.iter().count(), 3);
/// assert_eq!(problems.to_string().lines().count(), 3);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems(Vec<Problem>);

impl Problems {
    /// Iterates over the mistakes.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Problem> {
        self.0.iter()
    }

    pub(super) fn push(&mut self, problem: Problem) {
        self.0.push(problem);
    }

    /// Returns the problems in the order of their places if there is one.
    pub(super) fn into_result(mut self) -> Result<(), Self> {
        if self.0.is_empty() {
            return Ok(());
        }
        self.0.sort_by_key(|problem| problem.place);
        Err(self)
    }
}

impl From<Problem> for Problems {
    fn from(problem: Problem) -> Self {
        Self(vec![problem])
    }
}

impl FromIterator<Problem> for Problems {
    fn from_iter<I: IntoIterator<Item = Problem>>(problems: I) -> Self {
        Self(problems.into_iter().collect())
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            let line = if index == 0 { "" } else { "\n" };
            write!(f, "{line}{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}
