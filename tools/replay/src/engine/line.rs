//! A line of input: `t_ns,key,cost[,op[,class]]`, or `t_ns,,0,rule,RULE`.

use csv::ByteRecord;
use tollgate::{AnyRule, Cost, Timestamp};

use super::Call;

pub enum Line<'a> {
    Spend(Call<'a>, Cost),
    Look(Call<'a>, Cost),
    Refund(Call<'a>),
    Rule(AnyRule),
}

/// The last nanosecond that a time can represent: 2⁶³ − 1.
pub const LAST: u64 = i64::MAX as u64;

/// Returns a field, or nothing if it is missing.
#[inline]
fn field(record: &ByteRecord, index: usize) -> &[u8] {
    record.get(index).unwrap_or_default()
}

/// Returns `true` for the optional header line.
pub fn is_header(record: &ByteRecord) -> bool {
    [0, 1, 2].map(|index| field(record, index)) == [&b"t_ns"[..], b"key", b"cost"]
}

impl<'a> Line<'a> {
    /// Parses a line, or returns a sentence that says what is wrong with it.
    pub fn parse(record: &'a ByteRecord) -> Result<Self, String> {
        let field = |index| field(record, index);
        if !(3..=5).contains(&record.len()) {
            return Err(format!(
                "{} field{}: expected t_ns,key,cost and perhaps op and class; what contains commas must \
                 stand in quotes",
                record.len(),
                if record.len() == 1 { "" } else { "s" },
            ));
        }
        let at = time(field(0))?;
        let (key, cost, op) = (field(1), number(field(2)), field(3));
        if op == b"rule" {
            return rule(key, cost, field(4)).map(Self::Rule);
        }
        let call = Call {
            at,
            key,
            class: class(field(4))?,
        };
        match op {
            b"" | b"spend" => Ok(Self::Spend(call, spent(cost, field(2))?)),
            b"look" | b"peek" => Ok(Self::Look(call, spent(cost, field(2))?)),
            b"refund" => match cost {
                Some(_) => Ok(Self::Refund(call)),
                None => Err(format!(
                    "the cost of a refund is {}: expected a whole number, as 0; all of the last charge is \
                     given back",
                    shown(field(2))
                )),
            },
            op => Err(format!(
                "the op is {}: expected spend, look (or peek), refund, rule, or nothing for spend",
                shown(op)
            )),
        }
    }
}

fn time(field: &[u8]) -> Result<Timestamp, String> {
    match number(field) {
        Some(nanos @ ..=LAST) => Ok(Timestamp::from_nanos(nanos)),
        _ => Err(format!(
            "the time is {}: expected nanoseconds since 1970 from 0 to {LAST} (2^63 - 1)",
            shown(field)
        )),
    }
}

fn spent(cost: Option<u64>, field: &[u8]) -> Result<Cost, String> {
    cost.and_then(Cost::new).ok_or_else(|| {
        format!(
            "the cost is {}: expected a whole number from 1 to {} (2^64 - 1)",
            shown(field),
            u64::MAX
        )
    })
}

fn class(field: &[u8]) -> Result<Option<u8>, String> {
    match field {
        b"" => Ok(None),
        [digit @ b'0'..=b'2'] => Ok(Some(digit - b'0')),
        _ => Err(format!(
            "the class is {}: expected 0 (green), 1 (yellow), 2 (red), or nothing",
            shown(field)
        )),
    }
}

fn rule(key: &[u8], cost: Option<u64>, text: &[u8]) -> Result<AnyRule, String> {
    if !key.is_empty() || cost != Some(0) {
        return Err(
            "a rule for a key or with a cost: expected `t_ns,,0,rule,RULE`, for all keys from here on"
                .to_owned(),
        );
    }
    let text = std::str::from_utf8(text)
        .map_err(|_| format!("the rule {} is not UTF-8: expected plain text", shown(text)))?;
    rule_of(text).map_err(|error| format!("the rule stays as it was: {error}"))
}

/// Parses a rule that can be replayed.
pub fn rule_of(text: &str) -> Result<AnyRule, String> {
    match text.parse() {
        Ok(AnyRule::InFlight(_)) => Err(format!(
            "`{text}` counts calls in flight: expected a rule of a rate, because recorded calls have no end; \
             replay another rule"
        )),
        Ok(rule) => Ok(rule),
        Err(error) => Err(error.to_string()),
    }
}

/// Parses digits only. `u64::from_str` would also accept a plus sign.
#[inline]
fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |number, byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number.checked_mul(10)?.checked_add(digit.into())
    })
}

/// Returns the start of a field for a message, without line breaks.
fn shown(field: &[u8]) -> String {
    const MOST: usize = 40;
    let text = String::from_utf8_lossy(field);
    let begin: String = text
        .chars()
        .take(MOST)
        .flat_map(char::escape_debug)
        .collect();
    let more = if text.chars().nth(MOST).is_some() {
        "…"
    } else {
        ""
    };
    format!("`{begin}{more}`")
}
