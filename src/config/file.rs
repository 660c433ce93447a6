//! The checked content of a file, and its canonical text.

use std::{fmt, str::FromStr, sync::Arc};

use super::{
    document::Document,
    lint,
    problem::{Place, Problem, Problems},
    read,
    routes::RouteTable,
    statuses::Statuses,
};
use crate::{AnyRule, decision::Cost, key::AnyKey};
use http::Method;
use ipnet::IpNet;

/// A file of limits and routes that was checked as a whole.
///
/// [The module](super) says what a file contains. `Display` writes the canonical text, which is
/// read back to an equal file. Two files are equal if they mean the same: `60s` is `1m`, and the
/// order of limits and routes does not count.
///
/// ```
/// use tollgate::config::LimitsFile;
///
/// let file: LimitsFile = r#"
///     [limits]
///     login = { rule = "sliding-log 5/15m", key = "peer-ip", charge-if = "status 401" }
///
///     [[routes]]
///     match = "POST /login"
///     limits = ["login"]
///
///     [default]
///     limits = []
/// "#
/// .parse()?;
/// assert_eq!(file.to_string().parse(), Ok(file.clone()));
/// assert_eq!(file.warnings(), []);
/// # Ok::<(), tollgate::config::Problems>(())
/// ```
#[derive(Clone, Debug)]
pub struct LimitsFile {
    pub(super) limits: Vec<FileLimit>,
    pub(super) routes: Vec<FileRoute>,
    /// The limits of a request without a route.
    pub(super) default: Vec<String>,
    /// The routes, ready to be matched.
    pub(super) table: Arc<RouteTable>,
    pub(super) marks: Marks,
    warnings: Vec<Problem>,
}

/// The places of a file, for warnings and for stores that cannot run a rule.
#[derive(Clone, Debug, Default)]
pub(super) struct Marks {
    /// Of the name of each limit.
    pub(super) limits: Vec<Option<Place>>,
    /// Of the rule of each limit.
    pub(super) rules: Vec<Option<Place>>,
    /// Of the pattern of each route.
    pub(super) routes: Vec<Option<Place>>,
}

/// A limit of a file.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct FileLimit {
    pub(super) name: String,
    /// The name under which the store keeps the states, if it is not `name`.
    pub(super) was: Option<String>,
    pub(super) rule: AnyRule,
    pub(super) key: AnyKey,
    pub(super) cost: Cost,
    pub(super) charge: Charge,
    pub(super) exempt: Exempt,
    /// The percentage of keys for which the limit has effect; 0 is a dry run.
    pub(super) enforced: u8,
    pub(super) compared_with: Option<String>,
}

/// The requests that a limit charges.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Charge {
    All,
    /// After a response with one of these statuses.
    After(Statuses),
    /// All, of which those without one of these statuses are refunded.
    If(Statuses),
}

/// The requests that a limit does not count.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Exempt {
    pub(super) paths: Vec<String>,
    pub(super) networks: Vec<IpNet>,
}

/// A route, and the names of its limits.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct FileRoute {
    /// `None` for any method.
    pub(super) method: Option<Method>,
    pub(super) pattern: String,
    pub(super) limits: Vec<String>,
}

impl LimitsFile {
    /// Checks a document as a whole.
    ///
    /// # Errors
    ///
    /// All mistakes.
    pub fn new(document: &Document) -> Result<Self, Problems> {
        Self::with_limits(document, &[])
    }

    /// Checks a document whose routes may also name these limits of the program.
    pub(super) fn with_limits(document: &Document, of_program: &[&str]) -> Result<Self, Problems> {
        let mut file = read::read(document, of_program)?;
        file.warnings = lint::warnings(&file);
        Ok(file)
    }

    pub(super) fn unchecked(
        limits: Vec<FileLimit>,
        routes: Vec<FileRoute>,
        default: Vec<String>,
        marks: Marks,
    ) -> Self {
        Self {
            table: Arc::new(RouteTable::new(&routes)),
            limits,
            routes,
            default,
            marks,
            warnings: Vec::new(),
        }
    }

    /// Returns what is right and may still not be meant, in the order of the file:
    ///
    /// - a limit that no route has,
    /// - a limit that stands alone on a route, and whose clients choose their keys,
    /// - a rule that never admits a request of its cost,
    /// - a rule that forgets its clients at once, and so admits or refuses all that they send,
    /// - a route that a variant of its path walks around: `/login/`, or `/v1` beside `/v1/{*rest}`,
    /// - networks that are compared with the address of a proxy.
    pub fn warnings(&self) -> &[Problem] {
        &self.warnings
    }

    /// Returns the names of the limits, in the order of the file.
    pub fn limits(&self) -> impl ExactSizeIterator<Item = &str> {
        self.limits.iter().map(|limit| limit.name.as_str())
    }

    pub(super) fn limit(&self, name: &str) -> Option<&FileLimit> {
        self.limits.iter().find(|limit| limit.name == name)
    }
}

impl FileLimit {
    /// Returns the name under which the store keeps the states.
    pub(super) fn stored_name(&self) -> &str {
        self.was.as_deref().unwrap_or(&self.name)
    }

    /// Returns `true` if the limit has effect on some requests.
    pub(super) fn is_enforced(&self) -> bool {
        self.enforced > 0
    }
}

impl Exempt {
    pub(super) fn is_empty(&self) -> bool {
        self.paths.is_empty() && self.networks.is_empty()
    }

    pub(super) fn texts(&self) -> Vec<String> {
        let networks = self.networks.iter().map(IpNet::to_string);
        self.paths.iter().cloned().chain(networks).collect()
    }
}

impl PartialEq for LimitsFile {
    fn eq(&self, other: &Self) -> bool {
        let content = |file: &Self| {
            let (mut limits, mut routes) = (file.limits.clone(), file.routes.clone());
            limits.sort_by(|a, b| a.name.cmp(&b.name));
            routes.sort_by_key(FileRoute::to_string);
            for route in &mut routes {
                route.limits.sort();
            }
            (limits, routes, sorted(&file.default))
        };
        content(self) == content(other)
    }
}

/// Returns names in their order: that of a list does not count.
pub(super) fn sorted(names: &[String]) -> Vec<String> {
    let mut names = names.to_vec();
    names.sort();
    names
}

/// Reads TOML.
impl FromStr for LimitsFile {
    type Err = Problems;

    fn from_str(text: &str) -> Result<Self, Problems> {
        Self::new(&Document::from_toml(text)?)
    }
}

/// The method if there is one, and the pattern.
impl fmt::Display for FileRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(method) = &self.method {
            write!(f, "{method} ")?;
        }
        f.write_str(&self.pattern)
    }
}

/// The canonical text, as TOML.
impl fmt::Display for LimitsFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[limits]\n")?;
        for limit in &self.limits {
            writeln!(f, "{} = {limit}", name(&limit.name))?;
        }
        for route in &self.routes {
            writeln!(f, "\n[[routes]]\nmatch = {}", quoted(route))?;
            writeln!(f, "limits = {}", list(&route.limits))?;
        }
        write!(f, "\n[default]\nlimits = {}\n", list(&self.default))
    }
}

impl fmt::Display for FileLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{ rule = {}", quoted(&self.rule))?;
        write!(f, ", key = {}", quoted(&self.key))?;
        if let Some(was) = &self.was {
            write!(f, ", was = {}", quoted(was))?;
        }
        if self.cost != Cost::ONE {
            write!(f, ", cost = {}", self.cost.get())?;
        }
        match &self.charge {
            Charge::All => {}
            Charge::After(statuses) => write!(f, ", charge = {}", quoted(statuses))?,
            Charge::If(statuses) => write!(f, ", charge-if = {}", quoted(statuses))?,
        }
        if !self.exempt.is_empty() {
            write!(f, ", exempt = {}", list(&self.exempt.texts()))?;
        }
        match self.enforced {
            0 => f.write_str(", dry-run = true")?,
            100.. => {}
            percent => write!(f, ", enforce-for = {percent}")?,
        }
        if let Some(live) = &self.compared_with {
            write!(f, ", compared-with = {}", quoted(live))?;
        }
        f.write_str(" }")
    }
}

/// Returns a string of TOML.
fn quoted(text: &impl fmt::Display) -> String {
    let mut quoted = "\"".to_owned();
    for character in text.to_string().chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            control if control.is_control() => {
                quoted.push_str(&format!("\\u{:04X}", u32::from(control)));
            }
            other => quoted.push(other),
        }
    }
    quoted + "\""
}

/// Returns a key of TOML, in quotes only if it must be.
fn name(text: &str) -> String {
    let is_bare = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    match text.bytes().all(is_bare) {
        true => text.to_owned(),
        false => quoted(&text),
    }
}

/// Returns a list of strings of TOML.
fn list(texts: &[String]) -> String {
    let texts: Vec<_> = texts.iter().map(quoted).collect();
    format!("[{}]", texts.join(", "))
}
