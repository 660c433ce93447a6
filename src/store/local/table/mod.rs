//! The table of states of one word: fixed in size, and without a lock for keys that are known.
//!
//! A key has two sets of eight slots; its state is a [`PackedState`] in one of the sixteen. What is known is
//! found and advanced by [`Table::step`] without a lock. All else (placing newcomers, pushing
//! others out, settling, forgetting on demand) is done by threads that have locked the key's shard
//! of the [map](super::map), so that a key comes and goes by one thread at a time.
//!
//! | file | |
//! |---|---|
//! | `word` | what a slot's 64 bits say |
//! | `slot` | how threads share a slot |
//! | `sets` | memory, and where a key belongs |
//! | `kinds` | what packed states say, and for how long they matter |
//! | `place` | who gets which slot |

mod packed_kinds;
mod place;
mod sets;
mod slot;
#[expect(clippy::module_inception, reason = "a file is named for what is in it")]
mod table;
mod word;

pub(super) use self::{
    place::{Placed, SetScan},
    slot::Claim,
    table::Table,
    word::Word,
};
