//! The difference of two files by what they mean, in sentences.

use std::fmt;

use super::file::{Charge, FileLimit, FileRoute, LimitsFile, sorted};
use crate::algorithm::{Algorithm, AnyRule, slicing_for_keys};

/// The changes from one file of limits to another, a sentence each: the change, and the clients
/// that it affects.
///
/// It compares meanings, not texts: comments, the order of limits, and `60s` for `1m` are no
/// change.
///
/// ```
/// use tollgate::config::LimitsFile;
///
/// let file = |rule: &str| format!(
///     "limits.api = {{ rule = \"{rule}\", key = \"peer-ip\" }}\ndefault.limits = [\"api\"]"
/// );
/// let old: LimitsFile = file("token-bucket 60/1m").parse()?;
/// assert!(old.changes_to(&file("token-bucket 60/60s").parse()?).is_empty());
///
/// let changes = old.changes_to(&file("token-bucket 90/1m").parse()?);
/// assert_eq!(
///     changes.to_string(),
///     "limit `api`: the rule `token-bucket 60/1m` becomes `token-bucket 90/1m`; \
///      what its clients have spent stays spent",
/// );
/// # Ok::<(), tollgate::config::Problems>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes(Vec<String>);

impl Changes {
    /// Returns `true` if both files mean the same.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Iterates over the sentences, first those about limits.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    fn note(&mut self, sentence: String) {
        self.0.push(sentence);
    }
}

/// One sentence on each line.
impl fmt::Display for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("\n"))
    }
}

impl LimitsFile {
    /// Returns the changes from this file to `new`.
    pub fn changes_to(&self, new: &Self) -> Changes {
        let mut changes = Changes::default();
        let mut kept = Vec::new();
        for limit in &new.limits {
            // A limit is the one that has its states: a name may change.
            let old = self
                .limits
                .iter()
                .find(|old| old.stored_name() == limit.stored_name());
            match old {
                None => {
                    let namesake = self.limit(&limit.name);
                    kept.extend(namesake.map(|old| &old.name));
                    added(limit, namesake, &mut changes);
                }
                Some(old) => {
                    kept.push(&old.name);
                    changed(old, limit, &mut changes);
                }
            }
        }
        for old in &self.limits {
            if !kept.contains(&&old.name) {
                let effect = match old.is_enforced() {
                    true => "nobody is refused by it any more",
                    false => "it was a dry run",
                };
                changes.note(format!("limit `{}` is gone: {effect}", old.name));
            }
        }
        routes(self, new, &mut changes);
        changes
    }
}

fn added(limit: &FileLimit, namesake: Option<&FileLimit>, changes: &mut Changes) {
    let dry = if limit.is_enforced() {
        ""
    } else {
        ", on a dry run"
    };
    let text = match namesake {
        Some(old) => format!(
            "limit `{}` keeps its states under `{}`, no longer under `{}`: its clients begin anew",
            limit.name,
            limit.stored_name(),
            old.stored_name()
        ),
        None => format!(
            "limit `{}` is new: `{}` for each `{}`{dry}",
            limit.name, limit.rule, limit.key
        ),
    };
    changes.note(text);
}

/// Returns `true` if a member of several rules stands in another place, whose state it will read.
fn changes_places(old: &AnyRule, new: &AnyRule) -> bool {
    let (AnyRule::All(old), AnyRule::All(new)) = (old, new) else {
        return false;
    };
    let mut both = old.rules().iter().zip(new.rules());
    both.any(|(before, after)| before != after && new.rules().contains(before))
}

/// Returns `true` if counters count the windows of both rules, and each under a name of its own.
fn changes_counters(old: &AnyRule, new: &AnyRule) -> bool {
    let both = slicing_for_keys(old).and_then(|old| Ok((old, slicing_for_keys(new)?)));
    both.is_ok_and(|(old, new)| old != new)
}

/// Notes the changes of a limit that keeps its states.
fn changed(old: &FileLimit, new: &FileLimit, changes: &mut Changes) {
    let name = &new.name;
    let mut note = |sentence: String| changes.note(format!("limit `{name}`{sentence}"));
    if old.name != *name {
        note(format!(
            " was `{}`: it has the states of its old name, so what its clients have spent stays spent",
            old.name
        ));
    }
    let is_same_state = old.rule.state_kind() == new.rule.state_kind();
    if old.rule != new.rule {
        let effect = if !is_same_state {
            "a state of another algorithm begins, so all its clients begin anew"
        } else if changes_places(&old.rule, &new.rule) {
            "rules of one algorithm change places, and each reads what was spent under the other: keep them in order"
        } else if changes_counters(&old.rule, &new.rule) {
            "what its clients have spent stays spent, but on a store of counters all its clients begin anew"
        } else {
            "what its clients have spent stays spent"
        };
        note(format!(
            ": the rule `{}` becomes `{}`; {effect}",
            old.rule, new.rule
        ));
    }
    if old.key != new.key {
        note(format!(
            ": the key `{}` becomes `{}`; clients whose key is another one now begin anew",
            old.key, new.key
        ));
    }
    if old.cost != new.cost {
        note(format!(
            ": a request costs {}, and no longer {}",
            new.cost, old.cost
        ));
    }
    if old.charge != new.charge {
        note(format!(
            " charges {}, and no longer {}",
            new.charge, old.charge
        ));
    }
    let (before, after) = (old.exempt.texts(), new.exempt.texts());
    for text in after.iter().filter(|text| !before.contains(text)) {
        note(format!(" no longer counts requests of `{text}`"));
    }
    for text in before.iter().filter(|text| !after.contains(text)) {
        note(format!(" counts requests of `{text}`, which were exempt"));
    }
    if old.enforced != new.enforced {
        let share = |percent: u8| match percent {
            0 => "a dry run".to_owned(),
            100.. => "enforced for all keys".to_owned(),
            percent => format!("enforced for {percent} % of the keys"),
        };
        note(format!(
            " is {}, and was {}",
            share(new.enforced),
            share(old.enforced)
        ));
    }
    if old.compared_with != new.compared_with {
        let with = |limit: &FileLimit| match &limit.compared_with {
            Some(live) => format!("with `{live}`"),
            None => "with none".to_owned(),
        };
        note(format!(" is compared {}, and was {}", with(new), with(old)));
    }
}

fn routes(old: &LimitsFile, new: &LimitsFile, changes: &mut Changes) {
    let list = |names: &[String]| match names {
        [] => "nothing".to_owned(),
        names => names.join(", "),
    };
    // By the name that a limit has now, so that a new name alone is no change of routes.
    let renamed = |names: &[String]| -> Vec<String> {
        let now = |name: &String| {
            let stored = old.limit(name)?.stored_name();
            let limit = new
                .limits
                .iter()
                .find(|limit| limit.stored_name() == stored)?;
            Some(limit.name.clone())
        };
        let names = names.iter();
        names
            .map(|name| now(name).unwrap_or_else(|| name.clone()))
            .collect()
    };
    // Once for each route, as each is compared with all others.
    let shapes = |file: &LimitsFile| -> Vec<_> {
        let shape =
            |route: &FileRoute| (route.method.clone(), super::routes::shape(&route.pattern));
        file.routes.iter().map(shape).collect()
    };
    let (old_shapes, new_shapes) = (shapes(old), shapes(new));
    for (route, shape) in new.routes.iter().zip(&new_shapes) {
        let before = old_shapes.iter().position(|other| other == shape);
        match before.map(|index| &old.routes[index]) {
            None => changes.note(format!(
                "route `{route}` is new: limited by {}",
                list(&route.limits)
            )),
            Some(before) => {
                let before = renamed(&before.limits);
                if sorted(&before) != sorted(&route.limits) {
                    changes.note(format!(
                        "route `{route}`: limited by {}, and no longer by {}",
                        list(&route.limits),
                        list(&before)
                    ));
                }
            }
        }
    }
    for (route, shape) in old.routes.iter().zip(&old_shapes) {
        if !new_shapes.contains(shape) {
            changes.note(format!(
                "route `{route}` is gone: its requests have the limits of a less specific route, or the default"
            ));
        }
    }
    let before = renamed(&old.default);
    if sorted(&before) != sorted(&new.default) {
        changes.note(format!(
            "requests without a route: limited by {}, and no longer by {}",
            list(&new.default),
            list(&before)
        ));
    }
}

impl fmt::Display for Charge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all requests"),
            Self::After(statuses) => write!(f, "after a response of `{statuses}`"),
            Self::If(statuses) => write!(f, "requests with a response of `{statuses}`"),
        }
    }
}
