//! The kinds of states that a store contains.

use std::{iter::successors, sync::OnceLock};

use crate::algorithm::StateKind;

/// The kinds of states that a store has contained, each once. The list only grows.
///
/// A key's fingerprint depends on the kind, so [`reset`](super::Local::reset) needs all of them. There is one per algorithm or
/// composition in use, so there are few, and usually one.
#[derive(Default)]
pub(super) struct Kinds(OnceLock<Box<Noted>>);

struct Noted {
    kind: StateKind,
    rest: Kinds,
}

impl Kinds {
    /// Adds a kind if it is not in the list.
    pub(super) fn note(&self, kind: StateKind) {
        let mut kinds = self;
        loop {
            let noted = kinds.0.get_or_init(|| {
                let rest = Self::default();
                Box::new(Noted { kind, rest })
            });
            if noted.kind == kind {
                return;
            }
            kinds = &noted.rest;
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = StateKind> {
        let noted = successors(self.0.get(), |noted| noted.rest.0.get());
        noted.map(|noted| noted.kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_noted_once_by_whichever_thread() {
        let kinds = Kinds::default();
        assert_eq!(kinds.iter().count(), 0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..100).for_each(|n| kinds.note(StateKind::from_u64(n % 10))));
            }
        });
        let mut noted: Vec<_> = kinds.iter().map(StateKind::as_u64).collect();
        noted.sort_unstable();
        assert_eq!(noted, (0..10).collect::<Vec<_>>());
    }
}
