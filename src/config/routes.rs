//! The table of routes: which limits a request has, by its method and its path.
//!
//! Patterns are matched by `matchit`, the matcher of axum, on the path as it was sent, so that a
//! route of a file and a route of axum with one pattern match the same requests. A path that no
//! route matches is then tried in its plain form: servers differ in what they make of `//`, `%41`,
//! `/./` and a slash at the end, and a client must not walk around a limit by writing them.

use std::borrow::Cow;

use http::Method;
use matchit::{InsertError, Router};

use super::file::FileRoute;
use crate::{error::Error, key::percent_decoded};

/// The methods that a file may name (RFC 9110 §9.3, RFC 5789).
const METHODS: [Method; 9] = [
    Method::GET,
    Method::HEAD,
    Method::POST,
    Method::PUT,
    Method::DELETE,
    Method::PATCH,
    Method::OPTIONS,
    Method::CONNECT,
    Method::TRACE,
];

/// The routes of a file.
pub(super) struct RouteTable {
    /// Of the methods that routes name, with the routes of any method among them.
    methods: Vec<(Method, Router<usize>)>,
    /// Of any other method.
    any: Router<usize>,
}

impl RouteTable {
    /// Returns the table of routes of which no two match the same requests.
    pub(super) fn new(routes: &[FileRoute]) -> Self {
        let mut methods: Vec<Method> = routes
            .iter()
            .filter_map(|route| route.method.clone())
            .collect();
        if methods.contains(&Method::GET) {
            methods.push(Method::HEAD);
        }
        methods.sort_by_key(Method::to_string);
        methods.dedup();
        let router = |method: Option<&Method>| {
            let mut router = Router::new();
            for (index, route) in by_rank(routes, method) {
                // One of a better rank has its place, or there would be an error in the file.
                let _ = router.insert(shape(&route.pattern), index);
            }
            router
        };
        Self {
            any: router(None),
            methods: methods
                .into_iter()
                .map(|method| (method.clone(), router(Some(&method))))
                .collect(),
        }
    }

    /// Returns the index of the route of a request; `None` if it has none.
    #[inline]
    pub(super) fn find(&self, method: &Method, path: &str) -> Option<usize> {
        let router = self.methods.iter().find(|(of, _)| of == method);
        let router = router.map_or(&self.any, |(_, router)| router);
        match router.at(path) {
            Ok(found) => Some(*found.value),
            Err(_) => find_plain(router, path),
        }
    }
}

impl_debug!(RouteTable);

/// Tries the plain form of a path, and that with or without a slash at the end.
#[cold]
fn find_plain(router: &Router<usize>, path: &str) -> Option<usize> {
    let path = plain(path);
    let with_slash;
    let other = match path.strip_suffix('/') {
        Some("") => return router.at("/").ok().map(|found| *found.value),
        Some(without) => without,
        None => {
            with_slash = format!("{path}/");
            &with_slash
        }
    };
    let found = router.at(&path).or_else(|_| router.at(other));
    found.ok().map(|found| *found.value)
}

/// Returns the rank of a route for requests of a method; `None` if it does not count for them.
///
/// First are those of the method, then those of GET for HEAD, which routers answer by the handler
/// of GET, then those of any method.
fn rank(route: &FileRoute, method: Option<&Method>) -> Option<u8> {
    match (&route.method, method) {
        (None, _) => Some(2),
        (Some(own), Some(method)) if own == method => Some(0),
        (Some(own), Some(method)) if *own == Method::GET && *method == Method::HEAD => Some(1),
        _ => None,
    }
}

/// Returns the routes that count for a method, those of a better rank first.
fn by_rank<'a>(
    routes: &'a [FileRoute],
    method: Option<&Method>,
) -> impl Iterator<Item = (usize, &'a FileRoute)> {
    let mut ranked: Vec<_> = routes
        .iter()
        .enumerate()
        .filter_map(|(index, route)| Some((rank(route, method)?, index, route)))
        .collect();
    ranked.sort_by_key(|(rank, index, _)| (*rank, *index));
    ranked.into_iter().map(|(_, index, route)| (index, route))
}

/// Returns the method of this name.
pub(super) fn method(name: &str) -> Result<Method, Error> {
    let found = METHODS.iter().find(|method| method.as_str() == name);
    found.cloned().ok_or_else(|| {
        let names: Vec<_> = METHODS.iter().map(Method::as_str).collect();
        let upper = name.to_uppercase();
        let meant = super::read::meant(&upper, &names);
        Error::new(format!(
            "`{}` is no method: expected one of {}, as in `POST /login`{meant}",
            name.escape_debug(),
            names.join(", ")
        ))
    })
}

/// Checks a pattern by itself.
pub(super) fn check_pattern(pattern: &str) -> Result<(), Error> {
    let wrong = |what: &str, expected: &str, remedy: &str| {
        Err(Error::new(format!(
            "the pattern `{}` {what}: expected {expected}; {remedy}",
            pattern.escape_debug()
        )))
    };
    if !pattern.starts_with('/') {
        let expected = "a path, as in `/v1/{*rest}`";
        return wrong("does not begin with `/`", expected, "put one before it");
    }
    if let Some(at) = pattern.find(['?', '#']) {
        let expected = "the path alone, because no query is matched";
        return wrong(
            "has a query",
            expected,
            &format!("write `{}`", &pattern[..at]),
        );
    }
    let plain = plain(pattern);
    if plain != pattern {
        let remedy = format!("write `{plain}`, which also matches this one");
        return wrong(
            "is not in its plain form",
            "that, which paths are compared with",
            &remedy,
        );
    }
    let mut router = Router::new();
    if let Err(error) = router.insert(pattern, ()) {
        let expected = "parts as in `/users/{id}`, and `{*rest}` only at the end";
        return wrong("cannot be matched", expected, &error.to_string());
    }
    Ok(())
}

/// The routes that were read so far.
#[derive(Default)]
pub(super) struct TakenRoutes {
    /// The tables of each method that a file may name, and of any other one.
    tables: [Router<()>; METHODS.len() + 1],
    /// The method, the shape and the text of each route.
    routes: Vec<(Option<Method>, String, String)>,
}

impl TakenRoutes {
    /// Adds a route.
    ///
    /// # Errors
    ///
    /// When another route matches the same requests, or the matcher cannot tell both apart.
    pub(super) fn add(&mut self, route: &FileRoute) -> Result<(), Error> {
        let shape = shape(&route.pattern);
        let methods = METHODS.iter().map(Some).chain([None]);
        for (table, method) in self.tables.iter_mut().zip(methods) {
            if rank(route, method).is_none() {
                continue;
            }
            let Err(error) = table.insert(&shape, ()) else {
                continue;
            };
            let with = match &error {
                InsertError::Conflict { with } => with.as_str(),
                _ => "",
            };
            let others = || self.routes.iter().filter(|(_, other, _)| other == with);
            if with != shape {
                let other = others().next();
                let other = other.map_or_else(|| error.to_string(), |(_, _, text)| text.clone());
                return Err(Error::new(format!(
                    "`{route}` cannot stand beside `{other}`, because the matcher of axum cannot tell them apart: expected a literal \
                     part where they differ; write it, or leave one of them out"
                )));
            }
            if let Some((_, _, other)) = others().find(|(of, ..)| *of == route.method) {
                return Err(Error::new(format!(
                    "no request reaches `{route}`, because `{other}` matches the same ones: expected one route for them; remove one"
                )));
            }
        }
        self.routes
            .push((route.method.clone(), shape, route.to_string()));
        Ok(())
    }
}

/// Returns a path that a pattern matches.
pub(super) fn sample(pattern: &str) -> String {
    let mut sample = String::new();
    for part in Parts(pattern) {
        match part {
            Part::Literal(text) => sample.push_str(text),
            Part::Brace(brace) => sample.push(brace),
            Part::Any { .. } => sample.push('-'),
        }
    }
    sample
}

/// Returns a pattern whose parts are named by their number: names make no difference to what is
/// matched, but two of them at one place are an error of the matcher.
pub(super) fn shape(pattern: &str) -> String {
    let (mut shape, mut number) = (String::with_capacity(pattern.len()), 0);
    for part in Parts(pattern) {
        match part {
            Part::Literal(text) => shape.push_str(text),
            Part::Brace(brace) => shape.extend([brace, brace]),
            Part::Any { is_rest } => {
                let star = if is_rest { "*" } else { "" };
                shape.push_str(&format!("{{{star}{number}}}"));
                number += 1;
            }
        }
    }
    shape
}

/// The parts of a pattern.
struct Parts<'a>(&'a str);

enum Part<'a> {
    Literal(&'a str),
    /// A brace that is written twice.
    Brace(char),
    /// A part in braces: anything in one segment, or the rest.
    Any {
        is_rest: bool,
    },
}

impl<'a> Iterator for Parts<'a> {
    type Item = Part<'a>;

    fn next(&mut self) -> Option<Part<'a>> {
        let rest = self.0;
        let first = rest.chars().next()?;
        let (part, length) = match rest.find(['{', '}']) {
            None => (Part::Literal(rest), rest.len()),
            Some(at @ 1..) => (Part::Literal(&rest[..at]), at),
            Some(0) if rest.starts_with("{{") || rest.starts_with("}}") => (Part::Brace(first), 2),
            Some(0) => {
                let is_rest = rest.starts_with("{*");
                let end = rest.find('}').map_or(rest.len(), |end| end + 1);
                (Part::Any { is_rest }, end)
            }
        };
        self.0 = &rest[length..];
        Some(part)
    }
}

/// Returns the plain form of a path (RFC 3986 §6.2.2): without empty segments and dot segments, and
/// with each encoded character decoded, but for `/`, `%`, controls, and bytes that are no text.
pub(super) fn plain(path: &str) -> Cow<'_, str> {
    if !path.contains("//") && !path.contains("/.") && !path.contains('%') {
        return Cow::Borrowed(path);
    }
    let decoded = decoded(path);
    let mut segments: Vec<&str> = Vec::new();
    let mut ends_with_slash = false;
    for segment in decoded.split('/') {
        ends_with_slash = true;
        match segment {
            "" | "." => {}
            ".." => {
                segments.pop();
            }
            segment => {
                segments.push(segment);
                ends_with_slash = false;
            }
        }
    }
    let mut plain = String::with_capacity(decoded.len());
    for segment in &segments {
        plain.push('/');
        plain.push_str(segment);
    }
    if ends_with_slash || segments.is_empty() {
        plain.push('/');
    }
    Cow::Owned(plain)
}

fn decoded(path: &str) -> String {
    let decoded = percent_decoded(path.as_bytes(), is_kept);
    let mut text = String::with_capacity(decoded.len());
    for chunk in decoded.utf8_chunks() {
        text.push_str(chunk.valid());
        // What is no text stays encoded: decoded or not, the rest of the path has its plain form.
        text.extend(chunk.invalid().iter().map(|byte| format!("%{byte:02X}")));
    }
    text
}

/// Returns `true` if a character stays encoded: decoded, it would mean something else.
fn is_kept(byte: u8) -> bool {
    byte == b'/' || byte == b'%' || byte.is_ascii_control()
}
