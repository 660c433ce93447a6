//! A cache of the texts in `RateLimit` and `RateLimit-Policy` that are equal for all requests of a policy.

use std::sync::{Mutex, OnceLock, PoisonError};

use http::HeaderValue;

use super::{
    draft::{self, AvailableQuota},
    entry::PolicyEntry,
};
use crate::{policy::Policy, quota::Quota, respond::header_value};

/// The constant texts of one policy, kept for the life of the process.
///
/// Leaked, so that responses copy a pointer: a reference count would be written by all threads.
#[derive(Debug)]
pub(super) struct PolicyHeader {
    policy: Policy,
    limit: u64,
    quota: Quota,
    /// The beginning of `RateLimit`, up to the available units.
    beginning: Vec<u8>,
    /// The value of `RateLimit-Policy`.
    value: HeaderValue,
}

/// The maximum number of policies that are kept. No program has as many limits; the bound is for one that builds layers
/// without end.
const MAX_KEPT: usize = 1024;

static KEPT: Mutex<Vec<&'static PolicyHeader>> = Mutex::new(Vec::new());

impl PolicyHeader {
    /// Returns the kept texts of an entry, or keeps them; `None` when the cache is full.
    #[cold]
    fn intern(entry: &PolicyEntry<'_>) -> Option<&'static Self> {
        let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(header) = kept.iter().find(|header| header.matches(entry)) {
            return Some(header);
        }
        if kept.len() >= MAX_KEPT {
            return None;
        }
        let value = draft::policy_list(std::slice::from_ref(entry))?;
        let text: &'static str = Box::leak(value.to_str().ok()?.into());
        let header: &'static Self = Box::leak(Box::new(Self {
            policy: entry.policy.clone(),
            limit: entry.limit,
            quota: entry.quota,
            beginning: draft::beginning(entry.policy),
            value: HeaderValue::from_static(text),
        }));
        kept.push(header);
        Some(header)
    }

    #[inline]
    fn matches(&self, entry: &PolicyEntry<'_>) -> bool {
        self.policy.same_entry(entry.policy)
            && (self.limit, self.quota) == (entry.limit, entry.quota)
    }

    /// Returns the value of `RateLimit`.
    #[inline]
    pub(super) fn ratelimit(&self, available: AvailableQuota) -> Option<HeaderValue> {
        header_value::written(|buffer| {
            buffer.extend_from_slice(&self.beginning);
            available.push_numbers(buffer);
        })
    }

    /// Returns the value of `RateLimit-Policy`.
    #[inline]
    pub(super) fn ratelimit_policy(&self) -> HeaderValue {
        self.value.clone()
    }
}

/// The header of a layer's only limit, set by its first decision.
#[derive(Debug, Default)]
pub(in crate::respond) struct CachedPolicyHeader(OnceLock<Option<&'static PolicyHeader>>);

impl CachedPolicyHeader {
    /// Returns the header of this entry; `None` for an entry that differs from the first, and when the cache is full.
    #[inline]
    pub(super) fn get(&self, entry: &PolicyEntry<'_>) -> Option<&'static PolicyHeader> {
        let first = self.0.get_or_init(|| PolicyHeader::intern(entry));
        first.filter(|header| header.matches(entry))
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
        let entry = |policy| PolicyEntry {
            policy,
            decision: &decision,
            limit: 100,
            quota: Quota::per_minute(100),
        };
        let (first, second) = (CachedPolicyHeader::default(), CachedPolicyHeader::default());
        let header = first.get(&entry(&api)).unwrap();
        assert_eq!(header.value, "\"api\";q=100;w=60");
        assert!(std::ptr::eq(header, second.get(&entry(&api)).unwrap()));
        assert!(first.get(&entry(&other)).is_none());
    }
}
