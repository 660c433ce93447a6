//! Values that are equal for all requests of a policy, kept for the life of the process.

use std::sync::{Mutex, OnceLock, PoisonError};

/// The maximum number of values in a list. No program has as many limits; the bound is for one that builds layers without end.
const MAX_KEPT: usize = 1024;

/// A list of values of one type.
///
/// Leaked, so that responses copy a pointer: a reference count would be written by all threads.
pub(super) struct Kept<T: 'static>(Mutex<Vec<&'static T>>);

impl<T> Kept<T> {
    pub(super) const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// Returns the value that fits, or keeps the one that `make` returns; `None` when the list is full.
    #[cold]
    fn intern(
        &self,
        fits: impl Fn(&T) -> bool,
        make: impl FnOnce() -> Option<T>,
    ) -> Option<&'static T> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(value) = kept.iter().find(|value| fits(value)) {
            return Some(value);
        }
        if kept.len() >= MAX_KEPT {
            return None;
        }
        let value: &'static T = Box::leak(Box::new(make()?));
        kept.push(value);
        Some(value)
    }
}

/// The value for a layer's only limit, set by its first decision.
#[derive(Debug)]
pub(super) struct FirstKept<T: 'static>(OnceLock<Option<&'static T>>);

impl<T> FirstKept<T> {
    /// Returns the value if it fits. Returns `None` for a request that differs from the first, and when the list is full.
    #[inline]
    pub(super) fn get(
        &self,
        kept: &Kept<T>,
        fits: impl Fn(&T) -> bool,
        make: impl FnOnce() -> Option<T>,
    ) -> Option<&'static T> {
        let first = self.0.get_or_init(|| kept.intern(&fits, make));
        first.filter(|value| fits(value))
    }
}

impl<T> Default for FirstKept<T> {
    fn default() -> Self {
        Self(OnceLock::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_are_kept_once_and_so_many_at_most() {
        let kept = Kept::new();
        let get = |value: usize| {
            let first = FirstKept::default();
            first.get(&kept, |other| *other == value, || Some(value))
        };
        for value in 0..MAX_KEPT {
            assert_eq!(get(value), Some(&value));
        }
        assert_eq!(get(MAX_KEPT), None);
        let same = |a: Option<&usize>, b: Option<&usize>| {
            a.zip(b).is_some_and(|(a, b)| std::ptr::eq(a, b))
        };
        assert!(same(get(7), get(7)));
    }

    #[test]
    fn only_the_first_request_sets_the_value() {
        let (kept, first) = (Kept::new(), FirstKept::default());
        let get = |value: usize| first.get(&kept, |other| *other == value, || Some(value));
        assert_eq!((get(1), get(2), get(1)), (Some(&1), None, Some(&1)));
    }
}
