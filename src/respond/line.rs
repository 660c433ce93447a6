//! What is always the same in the fields of one policy.

use std::sync::{Mutex, OnceLock, PoisonError};

use http::HeaderValue;

use super::{draft, fields::Entry};
use crate::{outcome::Policy, quota::Quota};

/// The texts of one policy, made once and kept for the life of the process: no response counts a
/// reference to them, which all threads would write.
#[derive(Debug)]
pub(super) struct Line {
    /// The name in `RateLimit`, up to its numbers.
    pub(super) name: Vec<u8>,
    /// The `RateLimit-Policy`.
    pub(super) policy: HeaderValue,
}

/// How many lines are kept: more than a program has limits, and a bound for one that makes
/// limits without end.
const MOST: usize = 1024;

static KEPT: Mutex<Vec<&'static Line>> = Mutex::new(Vec::new());

impl Line {
    /// The line of a policy; `None` once too many are kept.
    #[cold]
    fn of(entry: &Entry<'_>) -> Option<&'static Self> {
        let policy = draft::policies(std::slice::from_ref(entry))?;
        let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(line) = kept.iter().find(|line| line.policy == policy) {
            return Some(line);
        }
        if kept.len() >= MOST {
            return None;
        }
        let text: &'static str = Box::leak(policy.to_str().ok()?.into());
        let line: &'static Self = Box::leak(Box::new(Self {
            name: draft::name(entry.policy),
            policy: HeaderValue::from_static(text),
        }));
        kept.push(line);
        Some(line)
    }
}

/// The line of a layer with a single limit, which hardly ever changes.
#[derive(Debug, Default)]
pub(super) struct Cache(OnceLock<Cached>);

#[derive(Debug)]
struct Cached {
    policy: Policy,
    limit: u64,
    quota: Quota,
    line: Option<&'static Line>,
}

impl Cache {
    /// The line of this entry; `None` for one unlike the first, or when there is no room for it.
    #[inline]
    pub(super) fn line(&self, entry: &Entry<'_>) -> Option<&'static Line> {
        let cached = self.0.get_or_init(|| Cached {
            policy: entry.policy.clone(),
            limit: entry.limit,
            quota: entry.quota,
            line: Line::of(entry),
        });
        let same = cached.policy.reads_as(entry.policy)
            && (cached.limit, cached.quota) == (entry.limit, entry.quota);
        cached.line.filter(|_| same)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        clock::Timestamp,
        decision::{Decision, Verdict},
    };

    #[test]
    fn equal_policies_share_a_line_and_others_find_none_in_a_cache() {
        let decision = Decision::new(Verdict::Allow, Timestamp::default(), 1);
        let (api, other) = (Policy::new("api"), Policy::new("other"));
        let entry = |policy| Entry {
            policy,
            decision: &decision,
            limit: 100,
            quota: Quota::per_minute(100),
        };
        let (first, second) = (Cache::default(), Cache::default());
        let line = first.line(&entry(&api)).unwrap();
        assert_eq!(line.policy, "\"api\";q=100;w=60");
        assert!(std::ptr::eq(line, second.line(&entry(&api)).unwrap()));
        assert!(first.line(&entry(&other)).is_none());
    }
}
