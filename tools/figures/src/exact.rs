//! An exact limiter, which knows all calls of the fleet at once.

use std::collections::HashMap;

use tollgate::{AnyRule, Timestamp};

use crate::meter::{self, Meter};

/// Meters of keys.
pub(crate) struct Meters<'a> {
    rule: &'a AnyRule,
    of_key: HashMap<u64, Box<dyn Meter>>,
}

impl<'a> Meters<'a> {
    pub(crate) fn new(rule: &'a AnyRule) -> Self {
        Self {
            rule,
            of_key: HashMap::new(),
        }
    }

    fn meter(&mut self, key: u64) -> Result<&mut Box<dyn Meter>, String> {
        if !self.of_key.contains_key(&key) {
            self.of_key.insert(key, meter::of(self.rule)?);
        }
        self.of_key
            .get_mut(&key)
            .ok_or_else(|| "no meter".to_owned())
    }

    /// Counts an admission. Returns by how many units the limit is exceeded after it.
    pub(crate) fn admitted(&mut self, key: u64, at: Timestamp) -> Result<u64, String> {
        let meter = self.meter(key)?;
        let excess = meter.excess(at, 1);
        meter.add(at, 1);
        Ok(excess)
    }

    /// Decides a call as an exact limiter does.
    pub(crate) fn admits(&mut self, key: u64, at: Timestamp) -> Result<bool, String> {
        let meter = self.meter(key)?;
        let admits = meter.excess(at, 1) == 0;
        if admits {
            meter.add(at, 1);
        }
        Ok(admits)
    }
}
