//! Warnings about a file that is right and may still not be what its author meant.

use std::time::Duration;

use super::{
    file::{FileLimit, FileRoute, LimitsFile},
    problem::Problem,
    routes,
};
use crate::{
    algorithm::{Algorithm, AnyRule},
    decision::Cost,
    time::Timestamp,
};

/// Returns all warnings, in the order of the file.
pub(super) fn warnings(file: &LimitsFile) -> Vec<Problem> {
    let mut warnings = Vec::new();
    for (limit, place) in file.limits.iter().zip(&file.marks.limits) {
        let texts = [
            unused(file, limit),
            chosen_by_clients(file, limit),
            never_admits(limit),
            forgets(limit),
            networks_of_proxies(file, limit),
        ];
        let path = format!("limits.{}", limit.name);
        let of_limit = texts.into_iter().flatten();
        warnings.extend(of_limit.map(|text| Problem::new(*place, path.clone(), text)));
    }
    for (index, (route, place)) in file.routes.iter().zip(&file.marks.routes).enumerate() {
        if let Some(text) = walked_around(file, route) {
            warnings.push(Problem::new(*place, format!("routes[{index}]"), text));
        }
    }
    warnings.sort_by_key(|warning| warning.place);
    warnings
}

/// Returns the lists of limits, each with the route that has it; the default has none.
fn lists(file: &LimitsFile) -> impl Iterator<Item = (Option<&FileRoute>, &[String])> {
    let of_routes = file.routes.iter();
    of_routes
        .map(|route| (Some(route), route.limits.as_slice()))
        .chain([(None, file.default.as_slice())])
}

/// Returns the text of a route in a message.
fn named(route: Option<&FileRoute>) -> String {
    route.map_or_else(|| "[default]".to_owned(), ToString::to_string)
}

fn unused(file: &LimitsFile, limit: &FileLimit) -> Option<String> {
    let is_used = lists(file).any(|(_, list)| list.contains(&limit.name));
    (!is_used).then(|| {
        "no route has this limit, so it limits nothing: expected its name in a list `limits`; add it there, or remove the limit"
            .to_owned()
    })
}

fn chosen_by_clients(file: &LimitsFile, limit: &FileLimit) -> Option<String> {
    if !limit.is_enforced() || !limit.key.is_chosen_by_clients() {
        return None;
    }
    let is_alone = |list: &[String]| {
        list.contains(&limit.name)
            && list.iter().all(|name| match file.limit(name) {
                // A limit of the program may have any key.
                None => false,
                Some(other) => !other.is_enforced() || other.key.is_chosen_by_clients(),
            })
    };
    let (route, _) = lists(file).find(|(_, list)| is_alone(list))?;
    Some(format!(
        "clients choose the key `{}`, and `{}` has no other limit: expected a key that they cannot invent beside it, because a \
         new value for each request is never refused; add a limit by `peer-ip` to the route, unless an outer layer checks the value",
        limit.key,
        named(route)
    ))
}

fn never_admits(limit: &FileLimit) -> Option<String> {
    let first = limit.rule.step(&mut None, Timestamp::default(), limit.cost);
    let decision = first.decision();
    let never = !decision.is_admitted() && decision.retry_after().is_none();
    never.then(|| {
        format!(
            "the rule `{}` never admits a cost of {}: expected a rule that admits one request at least; raise its burst, or lower \
             `cost`",
            limit.rule, limit.cost
        )
    })
}

fn forgets(limit: &FileLimit) -> Option<String> {
    match &limit.rule {
        AnyRule::All(all) => all
            .rules()
            .iter()
            .find_map(|rule| forgotten(rule, limit.cost)),
        rule => forgotten(rule, limit.cost),
    }
}

/// Simulates a call, and its repetition after `Retry-After`.
fn forgotten(rule: &AnyRule, cost: Cost) -> Option<String> {
    let (now, mut state) = (Timestamp::default(), None);
    let first = rule.step(&mut state, now, cost);
    let effect = if first.decision().is_admitted() {
        let is_kept = state.is_some_and(|state| rule.forgettable_at(&state) > now);
        (!is_kept).then_some("admits every call")
    } else {
        // Clients read whole seconds.
        let wait = first.decision().retry_after()?;
        let later = now.saturating_add(wait.saturating_add(Duration::from_secs(1)));
        let again = rule.step(&mut state, later, cost);
        (!again.decision().is_admitted()).then_some("refuses new clients again and again")
    }?;
    Some(format!(
        "the rule `{rule}` {effect}, because it forgets its clients: expected a rule that remembers them for longer; raise `keep` to \
         a minute at least, or leave it out"
    ))
}

fn networks_of_proxies(file: &LimitsFile, limit: &FileLimit) -> Option<String> {
    let compares_peers = !limit.exempt.networks.is_empty() && !limit.key.reads_forwarded();
    let other = file.limits.iter().find(|other| other.key.reads_forwarded());
    let other = other.filter(|_| compares_peers)?;
    Some(format!(
        "the networks in `exempt` are compared with the peer's address, which is that of a proxy if the key `{}` of `{}` is right: \
         expected a key that reads the client's address; name it last, as in `{} or {}`, or exempt by a limit of the program",
        other.key, other.name, limit.key, other.key
    ))
}

/// Finds a variant of the route's path that has fewer limits.
fn walked_around(file: &LimitsFile, route: &FileRoute) -> Option<String> {
    let method = route.method.clone().unwrap_or_default();
    let enforced = |name: &&String| file.limit(name).is_none_or(FileLimit::is_enforced);
    for variant in variants(&route.pattern) {
        let sample = routes::sample(&variant);
        let found = file
            .table
            .find(&method, &sample)
            .map(|index| &file.routes[index]);
        let is_meant = found.is_some_and(|found| {
            *found == *route || routes::shape(&found.pattern) == routes::shape(&variant)
        });
        if is_meant {
            continue;
        }
        let list = found.map_or(&file.default, |found| &found.limits);
        let mut lacking = route.limits.iter().filter(enforced);
        let Some(lacking) = lacking.find(|name| !list.contains(name)) else {
            continue;
        };
        let found = named(found);
        return Some(format!(
            "`{variant}` is of `{found}`, without the limit `{lacking}`, and some servers treat it as `{}`: expected the same limits \
             for both; add a route for it, or add `{lacking}` to `{found}`",
            route.pattern
        ));
    }
    None
}

/// Returns patterns of paths that servers may treat as those of a pattern.
fn variants(pattern: &str) -> Vec<String> {
    let mut variants = Vec::new();
    if let Some((before, _)) = pattern.split_once("/{*") {
        variants.extend([before.to_owned(), format!("{before}/")]);
    } else if let Some(without) = pattern.strip_suffix('/') {
        variants.push(without.to_owned());
    } else {
        variants.push(format!("{pattern}/"));
    }
    let doubled = pattern
        .rfind('/')
        .map(|at| format!("{}/{}", &pattern[..at], &pattern[at..]));
    variants.extend(doubled);
    variants.retain(|variant| !variant.is_empty());
    variants
}
