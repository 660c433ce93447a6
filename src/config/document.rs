//! A document: the tables, lists and values of a file, each with the place where it stands.
//!
//! Files are read from this tree by hand, and not by derived `Deserialize`: that stops at the first
//! mistake, and knows no places.

use std::{fmt, ops::Range};

use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, SeqAccess, Visitor},
};
use toml::de::{DeTable, DeValue};

use super::problem::{Place, Problem, Problems};

/// The largest file that is read, in bytes.
const MAX_BYTES: usize = 4 << 20;

/// The content of a file of limits before it is checked.
///
/// Made of TOML by [`from_toml`](Self::from_toml), whose mistakes are then reported with line and
/// column, or by `serde` of any format that describes itself, such as JSON and YAML, whose mistakes
/// are reported with a path such as `limits.api.rule`.
///
/// ```
/// use tollgate::config::{Document, LimitsFile};
///
/// let toml = r#"
///     limits.address = { rule = "token-bucket 20/1s", key = "peer-ip" }
///     default.limits = ["address"]
/// "#;
/// let json = r#"{
///     "limits": { "address": { "rule": "token-bucket 20/1s", "key": "peer-ip" } },
///     "default": { "limits": ["address"] }
/// }"#;
/// let json: Document = serde_json::from_str(json)?;
/// assert_eq!(LimitsFile::new(&json)?, LimitsFile::new(&Document::from_toml(toml)?)?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Document {
    pub(super) root: Node,
}

/// A value, and where it begins.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) value: Value,
    pub(super) place: Option<Place>,
}

#[derive(Clone, Debug)]
pub(super) enum Value {
    Text(String),
    Number(i64),
    Flag(bool),
    List(Vec<Node>),
    Table(Vec<Entry>),
    /// Of a type that no setting has.
    Other(&'static str),
}

/// A key of a table, and its value.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) place: Option<Place>,
    pub(super) node: Node,
}

impl Document {
    /// Reads TOML.
    ///
    /// # Errors
    ///
    /// Each place at which the text is not TOML; or a text of more than 4 MiB.
    pub fn from_toml(text: &str) -> Result<Self, Problems> {
        if text.len() > MAX_BYTES {
            let problem = format!(
                "a file of {} bytes: expected {MAX_BYTES} at most; divide its limits among several servers",
                text.len()
            );
            return Err(Problem::new(None, "", problem).into());
        }
        let lines = Lines::of(text);
        let (table, errors) = DeTable::parse_recoverable(text);
        if !errors.is_empty() {
            let problem = |error: toml::de::Error| {
                let place = error.span().map(|span| lines.place(&span));
                let text = format!(
                    "this is not TOML: {}; expected `name = value`, or a head such as `[limits]`",
                    error.message()
                );
                Problem::new(place, "", text)
            };
            return Err(errors.into_iter().map(problem).collect());
        }
        let root = Node {
            value: table_of(table.get_ref(), &lines),
            place: None,
        };
        Ok(Self { root })
    }
}

fn node_of(value: &DeValue<'_>, span: &Range<usize>, lines: &Lines<'_>) -> Node {
    let value = match value {
        DeValue::String(text) => Value::Text(text.to_string()),
        DeValue::Integer(number) => {
            let parsed = i64::from_str_radix(number.as_str(), number.radix());
            parsed.map_or(Value::Other("a number that is too large"), Value::Number)
        }
        DeValue::Boolean(flag) => Value::Flag(*flag),
        DeValue::Array(list) => Value::List(
            list.iter()
                .map(|item| node_of(item.get_ref(), &item.span(), lines))
                .collect(),
        ),
        DeValue::Table(table) => table_of(table, lines),
        DeValue::Float(_) => Value::Other("a fraction"),
        DeValue::Datetime(_) => Value::Other("a date"),
    };
    Node {
        value,
        place: Some(lines.place(span)),
    }
}

fn table_of(table: &DeTable<'_>, lines: &Lines<'_>) -> Value {
    let mut entries: Vec<_> = table
        .iter()
        .map(|(key, item)| (key.span().start, key, item))
        .collect();
    // The table is sorted by name, and people read files from the top.
    entries.sort_by_key(|(start, ..)| *start);
    let entry = |(_, key, item): (
        usize,
        &toml::Spanned<toml::de::DeString<'_>>,
        &toml::Spanned<DeValue<'_>>,
    )| Entry {
        key: key.get_ref().to_string(),
        place: Some(lines.place(&key.span())),
        node: node_of(item.get_ref(), &item.span(), lines),
    };
    Value::Table(entries.into_iter().map(entry).collect())
}

/// The offsets at which the lines of a text begin.
struct Lines<'a> {
    text: &'a str,
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    fn of(text: &'a str) -> Self {
        let breaks = text.match_indices('\n').map(|(at, _)| at + 1);
        Self {
            text,
            starts: std::iter::once(0).chain(breaks).collect(),
        }
    }

    fn place(&self, span: &Range<usize>) -> Place {
        let line = self
            .starts
            .partition_point(|start| *start <= span.start)
            .max(1);
        let before = self.text.get(self.starts[line - 1]..span.start);
        Place {
            line,
            column: before.unwrap_or_default().chars().count() + 1,
        }
    }
}

impl Value {
    /// Returns the type, as messages call it.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "a text",
            Self::Number(_) => "a number",
            Self::Flag(_) => "`true` or `false`",
            Self::List(_) => "a list",
            Self::Table(_) => "a table",
            Self::Other(kind) => kind,
        }
    }
}

impl<'de> Deserialize<'de> for Document {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Node::deserialize(from).map(|root| Self { root })
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let value = from.deserialize_any(AnyValue)?;
        Ok(Self { value, place: None })
    }
}

/// Takes any value.
struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a file of limits")
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Value, E> {
        Ok(Value::Flag(flag))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(Value::Number(number))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        let number = i64::try_from(number);
        Ok(number.map_or(Value::Other("a number that is too large"), Value::Number))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Value, E> {
        Ok(Value::Other("a fraction"))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::Text(text.to_owned()))
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Other("nothing"))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Other("nothing"))
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        Ok(Value::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut entries: Vec<Entry> = Vec::new();
        while let Some((key, node)) = map.next_entry::<String, Node>()? {
            // JSON allows it, and most readers keep one of both without a word.
            if entries.iter().any(|entry| entry.key == key) {
                return Err(de::Error::custom(format!(
                    "`{key}` stands twice in one table: expected it once; remove or rename one of them"
                )));
            }
            let place = None;
            entries.push(Entry { key, place, node });
        }
        Ok(Value::Table(entries))
    }
}
