//! The constant parts of the fields of one policy.

use std::sync::{Mutex, OnceLock, PoisonError};

use http::HeaderValue;

use super::{draft, fields::Entry};
use crate::{policy::Policy, quota::Quota};

/// The constant texts of a policy, kept for the life of the process.
///
/// Leaked, so that responses copy a pointer: a reference count would be written by all threads.
#[derive(Debug)]
pub(super) struct PolicyHeader {
    policy: Policy,
    limit: u64,
    quota: Quota,
    /// The name as `RateLimit` begins with it.
    pub(super) name: Vec<u8>,
    /// The value of `RateLimit-Policy`.
    pub(super) value: HeaderValue,
}

/// The most that are kept: more than a program has limits, and a bound for one that builds
/// layers without end.
const MAX_KEPT: usize = 1024;

static KEPT: Mutex<Vec<&'static PolicyHeader>> = Mutex::new(Vec::new());

impl PolicyHeader {
    /// Returns the kept texts of an entry; `None` when there is no room for more.
    #[cold]
    fn intern(entry: &Entry<'_>) -> Option<&'static Self> {
        let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(header) = kept.iter().find(|header| header.fits(entry)) {
            return Some(header);
        }
        if kept.len() >= MAX_KEPT {
            return None;
        }
        let value = draft::policies(std::slice::from_ref(entry))?;
        let text: &'static str = Box::leak(value.to_str().ok()?.into());
        let header: &'static Self = Box::leak(Box::new(Self {
            policy: entry.policy.clone(),
            limit: entry.limit,
            quota: entry.quota,
            name: draft::name(entry.policy),
            value: HeaderValue::from_static(text),
        }));
        kept.push(header);
        Some(header)
    }

    #[inline]
    fn fits(&self, entry: &Entry<'_>) -> bool {
        self.policy.same_entry(entry.policy)
            && (self.limit, self.quota) == (entry.limit, entry.quota)
    }
}

/// The header of a layer's only limit, set by its first decision.
#[derive(Debug, Default)]
pub(in crate::respond) struct CachedHeader(OnceLock<Option<&'static PolicyHeader>>);

impl CachedHeader {
    /// Returns the header of this entry; `None` for an entry unlike the first, or without room.
    #[inline]
    pub(super) fn get(&self, entry: &Entry<'_>) -> Option<&'static PolicyHeader> {
        let first = self.0.get_or_init(|| PolicyHeader::intern(entry));
        first.filter(|header| header.fits(entry))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        decision::{Decision, Verdict},
        time::Timestamp,
    };

    #[test]
    fn equal_policies_share_a_header_and_others_are_not_cached() {
        let decision = Decision::new(Verdict::Allow, Timestamp::default(), 1);
        let (api, other) = (Policy::new("api"), Policy::new("other"));
        let entry = |policy| Entry {
            policy,
            decision: &decision,
            limit: 100,
            quota: Quota::per_minute(100),
        };
        let (first, second) = (CachedHeader::default(), CachedHeader::default());
        let header = first.get(&entry(&api)).unwrap();
        assert_eq!(header.value, "\"api\";q=100;w=60");
        assert!(std::ptr::eq(header, second.get(&entry(&api)).unwrap()));
        assert!(first.get(&entry(&other)).is_none());
    }
}
