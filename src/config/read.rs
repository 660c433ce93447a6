//! The reader of a document: it goes on after each mistake, and returns all of them.

use http::Method;

use super::{
    document::{Document, Entry, Node, Value},
    file::{Charge, Exempt, FileLimit, FileRoute, LimitsFile, Marks},
    problem::{Place, Problem, Problems},
    routes::{self, TakenRoutes},
};
use crate::{
    AnyRule,
    algorithm::NAMES,
    decision::Cost,
    key::{AnyKey, parse_network},
    live_rule::check_rule,
    policy::Policy,
};

/// The words of a limit.
const OF_LIMIT: &[&str] = &[
    "rule",
    "key",
    "was",
    "cost",
    "charge",
    "charge-if",
    "exempt",
    "dry-run",
    "enforce-for",
    "compared-with",
];

/// Reads a document whose routes may also name the limits `of_program`.
///
/// # Errors
///
/// All mistakes.
pub(super) fn read(document: &Document, of_program: &[&str]) -> Result<LimitsFile, Problems> {
    let mut reader = Reader::default();
    let (mut limits, mut routes, mut default) = (None, None, None);
    for entry in reader.table(&document.root, "", &["limits", "routes", "default"]) {
        match entry.key.as_str() {
            "limits" => limits = Some(entry),
            "routes" => routes = Some(entry),
            _ => default = Some(entry),
        }
    }
    let mut marks = Marks::default();
    let limits = reader.limits(limits, of_program, &mut marks);
    let mut names: Vec<_> = limits.iter().map(|limit| limit.name.as_str()).collect();
    names.extend(of_program);
    // Limits that could not be read have names, too.
    let unread: Vec<_> = std::mem::take(&mut reader.unread);
    names.extend(unread.iter().map(String::as_str));
    let routes = reader.routes(routes, &names, &mut marks);
    let default = reader.default_limits(default, &names);
    reader.compared(&limits, &routes, &default, of_program, &marks);
    reader.problems.into_result()?;
    Ok(LimitsFile::unchecked(limits, routes, default, marks))
}

#[derive(Default)]
struct Reader {
    problems: Problems,
    /// The names of limits that could not be read.
    unread: Vec<String>,
}

impl Reader {
    fn wrong(&mut self, place: Option<Place>, path: &str, text: impl Into<String>) {
        self.problems.push(Problem::new(place, path, text));
    }

    /// Notes that a value has another type than `expected`.
    fn wrong_type(&mut self, node: &Node, path: &str, expected: &str) {
        let kind = node.value.kind();
        self.wrong(node.place, path, format!("{kind}: expected {expected}"));
    }

    /// Returns the entries of a table, without those that are none of `words`.
    fn table<'a>(&mut self, node: &'a Node, path: &str, words: &[&str]) -> Vec<&'a Entry> {
        let Value::Table(entries) = &node.value else {
            let text = format!("a table of {}, as in `{} = …`", quoted(words), words[0]);
            self.wrong_type(node, path, &text);
            return Vec::new();
        };
        let mut known = Vec::new();
        for entry in entries {
            if words.contains(&entry.key.as_str()) {
                known.push(entry);
                continue;
            }
            let text = format!(
                "`{}` is not known here: expected {}{}",
                entry.key.escape_debug(),
                quoted(words),
                meant(&entry.key, words)
            );
            self.wrong(entry.place, &below(path, &entry.key), text);
        }
        known
    }

    fn text<'a>(&mut self, node: &'a Node, path: &str, example: &str) -> Option<&'a str> {
        match &node.value {
            Value::Text(text) => Some(text),
            _ => {
                self.wrong_type(node, path, &format!("a text, as in `{example}`"));
                None
            }
        }
    }

    /// Returns the texts of a list, each with its place and path.
    fn texts<'a>(
        &mut self,
        node: &'a Node,
        path: &str,
        example: &str,
    ) -> Vec<(&'a str, Option<Place>, String)> {
        let Value::List(items) = &node.value else {
            self.wrong_type(node, path, &format!("a list of texts, as in `{example}`"));
            return Vec::new();
        };
        let mut texts = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let path = format!("{path}[{index}]");
            if let Some(text) = self.text(item, &path, example) {
                texts.push((text, item.place, path));
            }
        }
        texts
    }

    /// Returns the value of a text that is parsed.
    fn parsed<T>(
        &mut self,
        entry: &Entry,
        path: &str,
        example: &str,
        parse: impl FnOnce(&str) -> Result<T, crate::Error>,
    ) -> Option<T> {
        let text = self.text(&entry.node, path, example)?;
        match parse(text) {
            Ok(value) => Some(value),
            Err(error) => {
                // Behind the quote, if the text has no escapes: lines of TOML are short.
                let place = entry.node.place.map(|place| Place {
                    column: place.column + error.column().unwrap_or_default(),
                    ..place
                });
                self.wrong(place, path, error.message());
                None
            }
        }
    }

    fn number(
        &mut self,
        entry: &Entry,
        path: &str,
        range: std::ops::RangeInclusive<i64>,
    ) -> Option<u64> {
        let expected = format!("a whole number from {} to {}", range.start(), range.end());
        match entry.node.value {
            Value::Number(number) if range.contains(&number) => return u64::try_from(number).ok(),
            Value::Number(number) => {
                let text = format!("{number}: expected {expected}; change it");
                self.wrong(entry.node.place, path, text);
            }
            _ => {
                let text = format!("{expected}; write one, without quotes");
                self.wrong_type(&entry.node, path, &text);
            }
        }
        None
    }

    fn limits(
        &mut self,
        limits: Option<&Entry>,
        of_program: &[&str],
        marks: &mut Marks,
    ) -> Vec<FileLimit> {
        let mut read = Vec::<FileLimit>::new();
        let Some(Entry { node, .. }) = limits else {
            return read;
        };
        let Value::Table(entries) = &node.value else {
            let example = "a table of limits, as in `api = { rule = \"token-bucket 100/1m\" }`";
            self.wrong_type(node, "limits", example);
            return read;
        };
        for entry in entries {
            let path = below("limits", &entry.key);
            let Some((limit, place)) = self.limit(entry, &path) else {
                self.unread.push(entry.key.clone());
                continue;
            };
            let names = [entry.key.as_str(), limit.stored_name()];
            if let Some(name) = names.iter().find(|name| of_program.contains(name)) {
                let text = format!(
                    "the program has a limit `{name}`, too: expected one of each name; rename one of them, or take `was` from this one"
                );
                self.wrong(entry.place, &path, text);
            }
            let mut others = read.iter();
            if let Some(other) = others.find(|other| other.stored_name() == limit.stored_name()) {
                let text = format!(
                    "the states of `{}` belong to the limit `{}`, too: expected states of its own for each limit; \
                     take `was` from one of them, or give it another name",
                    limit.stored_name(),
                    other.name
                );
                self.wrong(entry.place, &path, text);
            }
            read.push(limit);
            marks.rules.push(place);
            marks.limits.push(entry.place);
        }
        read
    }

    /// Returns a limit and the place of its rule.
    fn limit(&mut self, entry: &Entry, path: &str) -> Option<(FileLimit, Option<Place>)> {
        let before = self.problems.iter().len();
        if let Err(error) = Policy::try_new(&entry.key) {
            self.wrong(entry.place, path, error.to_string());
        }
        let (mut rule, mut place) = (None, None);
        let mut key = Some(AnyKey::default());
        let (mut was, mut cost, mut exempt) = (None, Some(Cost::ONE), Exempt::default());
        let (mut charge, mut enforced, mut compared_with) = (Charge::All, 100, None);
        let words = self.table(&entry.node, path, OF_LIMIT);
        let is_given = |word: &str| words.iter().any(|entry| entry.key == word);
        for word in &words {
            let path = below(path, &word.key);
            let of_word = (*word, path.as_str());
            match word.key.as_str() {
                "rule" => {
                    place = word.node.place;
                    rule = self.rule(of_word);
                }
                "key" => {
                    key = self.parsed(word, &path, "peer-ip", |text| {
                        let key = text.parse::<AnyKey>();
                        key.map_err(|error| with_meant(error, text, AnyKey::WORDS))
                    });
                }
                "was" => was = self.policy_name(of_word),
                "cost" => cost = self.number(word, &path, 1..=i64::MAX).and_then(Cost::new),
                "charge" | "charge-if" => {
                    let statuses = self.parsed(word, &path, "status 401", str::parse);
                    let of = match word.key.as_str() {
                        "charge" => Charge::After,
                        _ => Charge::If,
                    };
                    charge = statuses.map_or(Charge::All, of);
                }
                "exempt" => exempt = self.exempt(of_word),
                "dry-run" => match word.node.value {
                    Value::Flag(true) => enforced = 0,
                    Value::Flag(false) => {}
                    _ => self.wrong_type(&word.node, &path, "`true` or `false`; write one of them"),
                },
                "enforce-for" => {
                    let percent = self.number(word, &path, 0..=100);
                    enforced = percent.map_or(100, |percent| percent as u8);
                }
                _ => compared_with = self.policy_name(of_word),
            }
        }
        for [word, other] in [["charge", "charge-if"], ["dry-run", "enforce-for"]] {
            if is_given(word) && is_given(other) {
                let text = format!(
                    "`{word}` and `{other}` exclude each other: expected one of them; remove the other one"
                );
                self.wrong(entry.place, path, text);
            }
        }
        let is_in_flight = matches!(rule, Some(AnyRule::InFlight(_)));
        for word in ["charge", "charge-if"] {
            if is_in_flight && is_given(word) {
                let text = format!(
                    "`{word}` is of what a call spends, and calls in flight give back what they hold: expected it beside another \
                     rule; remove it, or add a limit of another rule"
                );
                self.wrong(entry.place, path, text);
            }
        }
        if !is_given("rule") && matches!(entry.node.value, Value::Table(_)) {
            let text =
                "the limit has no rule: expected one, as in `rule = \"token-bucket 100/1m\"`";
            self.wrong(entry.place, path, text);
        }
        if compared_with.is_some() && enforced == 100 {
            let text = "`compared-with` is of a dry run: expected `dry-run = true` or `enforce-for` beside it; add it, \
                        or remove `compared-with`";
            self.wrong(entry.place, path, text);
        }
        if self.problems.iter().len() > before {
            return None;
        }
        let limit = FileLimit {
            was: was.filter(|was| *was != entry.key),
            name: entry.key.clone(),
            rule: rule?,
            key: key?,
            cost: cost?,
            charge,
            exempt,
            enforced,
            compared_with,
        };
        Some((limit, place))
    }

    fn rule(&mut self, (entry, path): (&Entry, &str)) -> Option<AnyRule> {
        self.parsed(entry, path, "token-bucket 100/1m", |text| {
            let rule = text.parse::<AnyRule>();
            let rule = rule.map_err(|error| with_meant(error, text, NAMES))?;
            check_rule(&rule)?;
            Ok(rule)
        })
    }

    fn policy_name(&mut self, (entry, path): (&Entry, &str)) -> Option<String> {
        self.parsed(entry, path, "api", |text| {
            Policy::try_new(text).map(|_| text.to_owned())
        })
    }

    fn exempt(&mut self, (entry, path): (&Entry, &str)) -> Exempt {
        let mut exempt = Exempt::default();
        let example = "[\"/health\", \"10.0.0.0/8\"]";
        for (text, place, path) in self.texts(&entry.node, path, example) {
            if text.starts_with('/') {
                exempt.paths.push(text.to_owned());
                continue;
            }
            match parse_network(text) {
                Ok(network) => exempt.networks.push(network.trunc()),
                Err(error) => {
                    let text = format!("{error}; a path begins with `/`, as in `/health`");
                    self.wrong(place, &path, text);
                }
            }
        }
        exempt.paths.sort();
        exempt.paths.dedup();
        exempt.networks.sort();
        exempt.networks.dedup();
        exempt
    }

    fn routes(
        &mut self,
        routes: Option<&Entry>,
        names: &[&str],
        marks: &mut Marks,
    ) -> Vec<FileRoute> {
        let Some(Entry { node, .. }) = routes else {
            return Vec::new();
        };
        let Value::List(items) = &node.value else {
            let expected = "a list of tables, each with a head, as in `[[routes]]`";
            self.wrong_type(node, "routes", expected);
            return Vec::new();
        };
        let (mut read, mut taken) = (Vec::new(), TakenRoutes::default());
        for (index, item) in items.iter().enumerate() {
            let path = format!("routes[{index}]");
            let (mut target, mut limits) = (None, None);
            let mut place = item.place;
            for entry in self.table(item, &path, &["match", "limits"]) {
                let path = below(&path, &entry.key);
                if entry.key == "match" {
                    place = entry.node.place;
                    target = Some(self.parsed(entry, &path, "POST /login", target_of));
                } else {
                    limits = Some(self.names(&entry.node, &path, names));
                }
            }
            if matches!(item.value, Value::Table(_)) {
                if target.is_none() {
                    let text = "the route matches nothing: expected `match`, as in `match = \"POST /login\"`";
                    self.wrong(item.place, &path, text);
                }
                if limits.is_none() {
                    let text = "the route has no `limits`: expected a list, as in `limits = [\"api\"]`, or `[]` if nothing \
                                limits it";
                    self.wrong(item.place, &path, text);
                }
            }
            let (Some(Some((method, pattern))), Some(limits)) = (target, limits) else {
                continue;
            };
            let route = FileRoute {
                method,
                pattern,
                limits,
            };
            if let Err(error) = taken.add(&route) {
                self.wrong(place, &below(&path, "match"), error.to_string());
                continue;
            }
            read.push(route);
            marks.routes.push(place);
        }
        read
    }

    fn default_limits(&mut self, default: Option<&Entry>, names: &[&str]) -> Vec<String> {
        let Some(default) = default else {
            let text = "the file does not say what limits a request without a route: expected a table `[default]`; add it \
                        with `limits = [\"…\"]`, or with `limits = []` if nothing does";
            self.wrong(None, "default", text);
            return Vec::new();
        };
        let entries = self.table(&default.node, "default", &["limits"]);
        let Some(entry) = entries.first() else {
            if matches!(default.node.value, Value::Table(_)) {
                let text = "`[default]` has no `limits`: expected a list, as in `limits = [\"address\"]`, or `[]` if nothing \
                            limits such requests";
                self.wrong(default.place, "default", text);
            }
            return Vec::new();
        };
        self.names(&entry.node, "default.limits", names)
    }

    /// Returns the names of limits in a list.
    fn names(&mut self, node: &Node, path: &str, names: &[&str]) -> Vec<String> {
        let mut read: Vec<String> = Vec::new();
        for (name, place, path) in self.texts(node, path, "[\"api\"]") {
            if !names.contains(&name) {
                let text = match names {
                    [] => format!(
                        "there is no limit `{name}`: expected one of the file; add it below `[limits]`"
                    ),
                    _ => format!(
                        "there is no limit `{}`: expected {}{}",
                        name.escape_debug(),
                        quoted(names),
                        meant(name, names)
                    ),
                };
                self.wrong(place, &path, text);
            } else if read.iter().any(|other| other == name) {
                let text = format!(
                    "`{name}` stands twice in one list: expected it once; remove one of them"
                );
                self.wrong(place, &path, text);
            } else {
                read.push(name.to_owned());
            }
        }
        read
    }

    /// Checks that each dry run stands beside the limit that it is compared with.
    fn compared(
        &mut self,
        limits: &[FileLimit],
        routes: &[FileRoute],
        default: &[String],
        of_program: &[&str],
        marks: &Marks,
    ) {
        let lists = routes
            .iter()
            .map(|route| (route.to_string(), route.limits.as_slice()))
            .chain([("[default]".to_owned(), default)]);
        for (route, list) in lists {
            for (limit, place) in limits.iter().zip(&marks.limits) {
                let Some(live) = &limit.compared_with else {
                    continue;
                };
                let has = |name: &String| list.contains(name);
                if !has(&limit.name) || has(live) {
                    continue;
                }
                let is_known = of_program.contains(&live.as_str())
                    || limits.iter().any(|limit| limit.name == *live);
                let what = if is_known {
                    "is not among the limits of"
                } else {
                    "is no limit, and not in"
                };
                let text = format!(
                    "the dry run is compared with `{live}`, which {what} `{route}`: expected both in one list; add `{live}` there, \
                     or take `{}` from it",
                    limit.name
                );
                let path = below(&below("limits", &limit.name), "compared-with");
                self.wrong(*place, &path, text);
            }
        }
    }
}

/// Returns the method and the pattern of a route.
fn target_of(text: &str) -> Result<(Option<Method>, String), crate::Error> {
    let mut words = text.split_whitespace();
    let (first, second, rest) = (words.next(), words.next(), words.next());
    let (method, pattern) = match (first, second, rest) {
        (Some(pattern), None, None) => (None, pattern),
        (Some(method), Some(pattern), None) => (Some(method), pattern),
        _ => {
            return Err(crate::Error::new(format!(
                "`{}` is no route: expected a pattern, or a method and a pattern, as in `/v1/{{*rest}}` or `POST /login`",
                text.escape_debug()
            )));
        }
    };
    let method = method.map(routes::method).transpose()?;
    routes::check_pattern(pattern)?;
    Ok((method, pattern.to_owned()))
}

/// Returns the path of a value below another one.
fn below(path: &str, key: &str) -> String {
    let is_bare = |character: char| character.is_alphanumeric() || "-_".contains(character);
    let key = match !key.is_empty() && key.chars().all(is_bare) {
        true => key.to_owned(),
        false => format!("\"{}\"", key.escape_debug()),
    };
    if path.is_empty() {
        return key;
    }
    format!("{path}.{key}")
}

/// Returns words in quotes, as a list of a sentence.
fn quoted(words: &[&str]) -> String {
    let quoted: Vec<_> = words.iter().map(|word| format!("`{word}`")).collect();
    match quoted.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}

/// Appends the word that was probably meant to the error of an unknown first word.
fn with_meant(error: crate::Error, text: &str, words: &[&str]) -> crate::Error {
    let begin = error.column().map_or(0, |column| column - 1);
    let word = text
        .get(begin..)
        .and_then(|text| text.split_whitespace().next());
    let is_of_list = |word: &&str| {
        error
            .message()
            .contains(&format!("`{word}`: expected `{}`", words[0]))
    };
    match word.filter(is_of_list) {
        Some(word) => error.with_end(&meant(word, words)),
        None => error,
    }
}

/// Returns the word that was probably meant, as the end of a message.
pub(super) fn meant(word: &str, words: &[&str]) -> String {
    let likeness = |other: &str| match word.len() > 2 && other.starts_with(word) {
        true => 1.0,
        false => strsim::normalized_damerau_levenshtein(word, other),
    };
    let nearest = words.iter().copied().map(|other| (likeness(other), other));
    let nearest = nearest.max_by(|a, b| a.0.total_cmp(&b.0));
    match nearest.filter(|(likeness, _)| *likeness >= 0.6) {
        Some((_, other)) => format!("; did you mean `{other}`?"),
        None => "; use one of these".to_owned(),
    }
}
