//! The table of a store, created when it is first used.

use std::{ops::Deref, sync::OnceLock};

use super::table::Table;

/// A table that is created when it is first used.
///
/// A layer begins with a store of its own, which a user may replace before it is ever called. The table is the largest part of a store, and
/// a C library that takes its memory from a heap clears all of it at once.
pub(super) struct LazyTable {
    keys: usize,
    table: OnceLock<Table>,
}

/// The largest number of keys whose table waits for the first call. A larger table is created with the store, so that a capacity for which
/// there is no memory is reported at the start, and not by a request.
pub(super) const MOST_LAZY_KEYS: usize = 1_000_000;

impl LazyTable {
    /// Creates the table of a store for `keys` keys, or delays that to the first use.
    ///
    /// # Panics
    ///
    /// If it is created here, and there is not enough memory for it.
    pub(super) fn new(keys: usize) -> Self {
        let table = Self {
            keys,
            table: OnceLock::new(),
        };
        if keys > MOST_LAZY_KEYS {
            let _: &Table = &table;
        }
        table
    }

    /// Vacates all slots of a table that was used, and removes all debts. Returns how many keys there were.
    pub(super) fn clear(&self) -> usize {
        self.table.get().map_or(0, Table::clear)
    }
}

impl Deref for LazyTable {
    type Target = Table;

    // Always inlined: every decision reads the table.
    #[inline(always)]
    fn deref(&self) -> &Table {
        self.table.get_or_init(|| Table::new(self.keys))
    }
}
