//! The settings of a layer, and the checks of their values.

use std::{sync::Arc, time::Duration};

use crate::{TokenBucket, error::Error, time::Clock};

/// See the setters of [`IntrospectBuilder`](super::IntrospectBuilder).
pub(super) struct Settings {
    pub(super) max_age: Duration,
    pub(super) inactive_age: Duration,
    pub(super) serve_stale: Duration,
    pub(super) deadline: Duration,
    pub(super) retry_after: Duration,
    pub(super) capacity: usize,
    pub(super) max_lookups: usize,
    pub(super) max_rate: TokenBucket,
    pub(super) allows_anonymous: bool,
    pub(super) fails_open: bool,
    pub(super) clock: Arc<dyn Clock + Send + Sync>,
}

const MILLISECOND: Duration = Duration::from_millis(1);
const DAY: Duration = Duration::from_secs(86_400);

impl Settings {
    /// Returns an error for the first value out of its range.
    pub(super) fn check(&self) -> Result<(), Error> {
        for (name, value, least, most) in [
            ("max_age", self.max_age, MILLISECOND, DAY),
            ("inactive_age", self.inactive_age, MILLISECOND, DAY),
            ("serve_stale", self.serve_stale, Duration::ZERO, DAY),
            ("deadline", self.deadline, MILLISECOND, DAY),
            ("retry_after", self.retry_after, MILLISECOND, DAY),
        ] {
            if value < least || value > most {
                return Err(Error::new(format!(
                    "`{name}` of an introspection layer is {value:?}: expected {least:?} to {most:?}; pass such a time to \
                     `IntrospectBuilder::{name}`"
                )));
            }
        }
        for (name, value, most) in [
            ("capacity", self.capacity, 10_000_000),
            ("max_lookups", self.max_lookups, 100_000),
        ] {
            if value == 0 || value > most {
                return Err(Error::new(format!(
                    "`{name}` of an introspection layer is {value}: expected 1 to {most}; pass such a number to \
                     `IntrospectBuilder::{name}`"
                )));
            }
        }
        Ok(())
    }
}
