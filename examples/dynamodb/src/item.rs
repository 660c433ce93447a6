//! The attributes of an item.

use std::{collections::HashMap, time::Duration};

use aws_sdk_dynamodb::{primitives::Blob, types::AttributeValue};
use tollgate::{
    store::StoreError,
    time::{Clock, SystemClock},
};

/// The key of a state or a counter, in bytes.
pub(crate) const KEY: &str = "key_bytes";
/// A number that each write draws anew.
pub(crate) const WRITE: &str = "write_id";
pub(crate) const STATE: &str = "state_bytes";
pub(crate) const TOTAL: &str = "counter_total";
/// A second of Unix time, from which on DynamoDB removes the item.
pub(crate) const EXPIRES: &str = "expires_at";

pub(crate) type Item = HashMap<String, AttributeValue>;

pub(crate) fn bytes(bytes: &[u8]) -> AttributeValue {
    AttributeValue::B(Blob::new(bytes))
}

pub(crate) fn number(number: impl ToString) -> AttributeValue {
    AttributeValue::N(number.to_string())
}

/// Returns the time after which an item may be removed. DynamoDB does so some time later, in up to
/// a few days.
pub(crate) fn expiry(keep: Duration) -> AttributeValue {
    let now = Duration::from_nanos(SystemClock::default().now().as_nanos());
    // Rounded up, and a second for clocks that differ.
    number(now.saturating_add(keep).as_secs().saturating_add(2))
}

/// Reads a number of an item.
pub(crate) fn number_of(item: &Item, name: &str) -> Result<u64, StoreError> {
    let found = item.get(name).and_then(|value| value.as_n().ok());
    // Counters may be above the greatest number here, and stay there.
    let found = found.and_then(|digits| digits.parse::<u128>().ok());
    let found = found.ok_or_else(|| unreadable(name))?;
    Ok(u64::try_from(found).unwrap_or(u64::MAX))
}

pub(crate) fn unreadable(name: &str) -> StoreError {
    StoreError::other(format!(
        "an item has no valid attribute `{name}`: expected items of this store alone; use a table that nobody else writes to"
    ))
}
