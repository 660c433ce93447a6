//! A strict client, on the parser of another crate.

use std::collections::{BTreeMap, HashSet};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::HeaderMap;
use sfv::{BareItem, Dictionary, List, ListEntry, Parser};
use tollgate::respond::Headers;

use super::{DRAFT06, LEGACY};

pub(super) fn lines<'a>(headers: &'a HeaderMap, name: &str) -> Vec<&'a str> {
    let values = headers.get_all(name).iter();
    values.map(|value| value.to_str().unwrap()).collect()
}

/// The value of a field, as a recipient joins its lines (RFC 9110 §5.3).
fn joined(headers: &HeaderMap, name: &str) -> Option<String> {
    headers
        .contains_key(name)
        .then(|| lines(headers, name).join(", "))
}

/// The numbers that a strict client reads in the fields of a response.
#[derive(Debug, Default)]
pub(super) struct Read {
    /// The remaining units in `RateLimit` of the current draft, by name.
    pub(super) draft: Option<Vec<(String, u64)>>,
    pub(super) draft07: Option<[u64; 3]>,
    pub(super) draft06: Option<[Option<u64>; 3]>,
    pub(super) legacy: Option<[Option<u64>; 3]>,
}

fn integer(item: &BareItem) -> u64 {
    let number = i64::from(item.as_integer().expect("an Integer"));
    u64::try_from(number).expect("0 at least")
}

/// Reads `RateLimit`; panics unless it is as one of the drafts says.
fn read_ratelimit(value: &str, read: &mut Read) {
    if let Ok(list) = Parser::new(value).parse::<List>()
        && list.iter().any(
            |entry| matches!(entry, ListEntry::Item(item) if item.bare_item.as_string().is_some()),
        )
    {
        let members = list.iter().map(|entry| {
            let ListEntry::Item(item) = entry else {
                panic!("an Inner List: {value}")
            };
            let name = item
                .bare_item
                .as_string()
                .expect("a String")
                .as_str()
                .to_owned();
            if let Some(window) = item.params.get("t") {
                integer(window);
            }
            (name, integer(item.params.get("r").expect("`r`")))
        });
        read.draft = Some(members.collect());
        return;
    }
    let dictionary: Dictionary = Parser::new(value).parse().expect(value);
    read.draft07 = Some(["limit", "remaining", "reset"].map(|key| {
        let Some(ListEntry::Item(item)) = dictionary.get(key) else {
            panic!("no `{key}`: {value}")
        };
        integer(&item.bare_item)
    }));
}

/// Panics unless a `RateLimit-Policy` is as one of the drafts says.
fn check_policies(value: &str) {
    let list: List = Parser::new(value).parse().expect(value);
    let is_named = list.iter().map(|entry| {
        let ListEntry::Item(item) = entry else {
            panic!("an Inner List: {value}")
        };
        match item.bare_item.as_string() {
            Some(_) => integer(item.params.get("q").expect("`q`")),
            None => integer(&item.bare_item),
        };
        item.bare_item.as_string().is_some()
    });
    let kinds: HashSet<bool> = is_named.collect();
    assert_eq!(kinds.len(), 1, "names and numbers: {value}");
}

/// A member of `RateLimit` and one of `RateLimit-Policy`: their units and seconds.
pub(super) type Limit = [Option<(u64, Option<u64>)>; 2];

/// Reads the limits of the current draft, by name and partition; panics if one is in a List twice.
pub(super) fn named_limits(headers: &HeaderMap) -> BTreeMap<String, Limit> {
    let mut limits: BTreeMap<String, Limit> = BTreeMap::new();
    let fields = [("ratelimit", "r", "t"), ("ratelimit-policy", "q", "w")];
    for (index, (name, units, seconds)) in fields.into_iter().enumerate() {
        let Some(value) = joined(headers, name) else {
            continue;
        };
        for entry in Parser::new(&value).parse::<List>().expect(&value) {
            let ListEntry::Item(item) = entry else {
                panic!("an Inner List: {value}")
            };
            let mut id = item
                .bare_item
                .as_string()
                .expect(&value)
                .as_str()
                .to_owned();
            if let Some(partition) = item.params.get("pk") {
                let partition = partition.as_byte_sequence().expect(&value);
                id += &format!(";pk=:{}:", STANDARD.encode(partition));
            }
            let units = integer(&item.params[units]);
            let seconds = item.params.get(seconds).map(integer);
            let part = &mut limits.entry(id).or_default()[index];
            assert!(part.is_none(), "a name twice: {value}");
            *part = Some((units, seconds));
        }
    }
    limits
}

/// Reads three fields with a number each.
fn read_triple(headers: &HeaderMap, names: [&str; 3]) -> Option<[Option<u64>; 3]> {
    let numbers = names.map(|name| {
        let lines = lines(headers, name);
        assert!(lines.len() <= 1, "{name}: {lines:?}");
        let line = *lines.first()?;
        // Upstreams send policies behind the limit, and fractions of seconds.
        let number = match name {
            name if name.ends_with("limit") => line.split([',', ';']).next().unwrap(),
            name if name.ends_with("reset") => line.split('.').next().unwrap(),
            _ => line,
        };
        Some(number.parse().unwrap_or_else(|_| panic!("{name}: {line}")))
    });
    let is_there = numbers.iter().any(Option::is_some);
    assert!(
        !is_there || numbers[1].is_some(),
        "without remaining units: {numbers:?}"
    );
    is_there.then_some(numbers)
}

/// Reads the fields of these formats as a strict client does; panics if they are invalid.
pub(super) fn read(headers: &HeaderMap, with_draft: bool, triples: [bool; 2]) -> Read {
    let mut read = Read::default();
    if with_draft {
        if let Some(value) = joined(headers, "ratelimit") {
            read_ratelimit(&value, &mut read);
        }
        if let Some(value) = joined(headers, "ratelimit-policy") {
            check_policies(&value);
        }
    }
    if triples[0] {
        read.draft06 = read_triple(headers, DRAFT06);
    }
    if triples[1] {
        read.legacy = read_triple(headers, LEGACY);
    }
    read
}

impl Read {
    /// The fewest remaining units in the fields of a format.
    pub(super) fn least(&self, format: Headers) -> Option<u64> {
        match format {
            Headers::Draft => self.draft.as_ref()?.iter().map(|(_, units)| *units).min(),
            Headers::Draft07 => self.draft07.map(|[_, remaining, _]| remaining),
            Headers::Draft06 => self.draft06?[1],
            _ => self.legacy?[1],
        }
    }

    pub(super) fn formats(&self) -> [bool; 4] {
        let Self {
            draft,
            draft07,
            draft06,
            legacy,
        } = self;
        [
            draft.is_some(),
            draft07.is_some(),
            draft06.is_some(),
            legacy.is_some(),
        ]
    }
}
