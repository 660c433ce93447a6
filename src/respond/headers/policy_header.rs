//! A cache of the texts in `RateLimit` and `RateLimit-Policy` that are equal for all requests of a policy.

use http::HeaderValue;

use super::{
    draft::{self, AvailableQuota},
    entry::PolicyEntry,
};
use crate::{
    policy::Policy,
    quota::Quota,
    respond::{
        header_value,
        kept::{FirstKept, Kept},
    },
};

/// The constant texts of one policy.
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

static KEPT: Kept<PolicyHeader> = Kept::new();

impl PolicyHeader {
    #[cold]
    fn new(entry: &PolicyEntry<'_>) -> Option<Self> {
        let value = draft::policy_list(std::slice::from_ref(entry))?;
        let text: &'static str = Box::leak(value.to_str().ok()?.into());
        Some(Self {
            policy: entry.policy.clone(),
            limit: entry.limit,
            quota: entry.quota,
            beginning: draft::beginning(entry.policy),
            value: HeaderValue::from_static(text),
        })
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
pub(in crate::respond) struct CachedPolicyHeader(FirstKept<PolicyHeader>);

impl CachedPolicyHeader {
    /// Returns the header of this entry; `None` for an entry that differs from the first, and when the cache is full.
    #[inline]
    pub(super) fn get(&self, entry: &PolicyEntry<'_>) -> Option<&'static PolicyHeader> {
        let matches = |header: &PolicyHeader| header.matches(entry);
        self.0.get(&KEPT, matches, || PolicyHeader::new(entry))
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
