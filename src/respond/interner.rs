//! Values that are equal for all requests of a policy, interned for the life of the process.
//!
//! The annotation of a response is a pointer and two numbers. The constant texts are made once per
//! policy and quota and leaked, at most 1024 of them; later ones are written for each response. An
//! `Arc` in it, or texts copied into it, take 10 to 17 % longer. The problem document of a layer's
//! only limit is kept in the same way, with a bound of its own.

use std::sync::{Mutex, OnceLock};

use crate::locks::lock;

/// The maximum number of values in a list. It bounds the memory of a program that builds layers
/// without end.
const MAX_INTERNED: usize = 1024;

/// Interns the values of one type.
///
/// Values are leaked, so that responses copy a pointer: a reference count would be written by all
/// threads, and takes a response 10 to 17 % longer.
pub(super) struct Interner<T: 'static>(Mutex<Vec<&'static T>>);

impl<T> Interner<T> {
    pub(super) const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// Returns the value that fits, or interns the one that `make` returns; `None` when the list is
    /// full.
    #[cold]
    fn intern(
        &self,
        fits: impl Fn(&T) -> bool,
        make: impl FnOnce() -> Option<T>,
    ) -> Option<&'static T> {
        let mut list = lock(&self.0);
        if let Some(value) = list.iter().find(|value| fits(value)) {
            return Some(value);
        }
        if list.len() >= MAX_INTERNED {
            return None;
        }
        let value: &'static T = Box::leak(Box::new(make()?));
        list.push(value);
        Some(value)
    }
}

/// The interned value of a layer's only limit, set by its first decision.
#[derive(Debug)]
pub(super) struct FirstInterned<T: 'static>(OnceLock<Option<&'static T>>);

impl<T> FirstInterned<T> {
    /// Returns the value if it fits. Returns `None` for a request that differs from the first, and
    /// when the list is full.
    #[inline]
    pub(super) fn get(
        &self,
        list: &Interner<T>,
        fits: impl Fn(&T) -> bool,
        make: impl FnOnce() -> Option<T>,
    ) -> Option<&'static T> {
        let first = self.0.get_or_init(|| list.intern(&fits, make));
        first.filter(|value| fits(value))
    }
}

impl<T> Default for FirstInterned<T> {
    fn default() -> Self {
        Self(OnceLock::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_are_interned_once_and_up_to_a_bound() {
        let list = Interner::new();
        let get = |value: usize| {
            let first = FirstInterned::default();
            first.get(&list, |other| *other == value, || Some(value))
        };
        for value in 0..MAX_INTERNED {
            assert_eq!(get(value), Some(&value));
        }
        assert_eq!(get(MAX_INTERNED), None);
        let same = |a: Option<&usize>, b: Option<&usize>| {
            a.zip(b).is_some_and(|(a, b)| std::ptr::eq(a, b))
        };
        assert!(same(get(7), get(7)));
    }

    #[test]
    fn only_the_first_request_sets_the_value() {
        let (list, first) = (Interner::new(), FirstInterned::default());
        let get = |value: usize| first.get(&list, |other| *other == value, || Some(value));
        assert_eq!((get(1), get(2), get(1)), (Some(&1), None, Some(&1)));
    }
}
