//! The table of packed states. Keys that it contains are decided without a lock.
//!
//! The table grows with its keys, by a set at a time. A key has two sets of eight slots. Its state is a
//! [`PackedState`](crate::algorithm::packed::PackedState) in one of these sixteen slots. [`Table::step`] finds and advances it without
//! a lock. A thread that inserts, evicts, settles or resets a key has locked the shard of the
//! key in the [map](super::map), so only one thread at a time inserts or removes a key.
//!
//! | file | |
//! |---|---|
//! | `word` | the 64 bits of a slot |
//! | `slot` | shared access to a slot |
//! | `sets` | the memory, and the two sets of a key |
//! | `size` | the number of sets in use |
//! | `two_words` | states in two words, beside the slots |
//! | `packed_kinds` | the kinds of packed states, and how long each matters |
//! | `table` | decisions about keys in the table |
//! | `place` | insertion and eviction |
//! | `grow` | one more set |

mod grow;
mod packed_kinds;
mod place;
mod sets;
mod size;
mod slot;
#[expect(clippy::module_inception, reason = "a file is named for what is in it")]
mod table;
mod two_words;
mod word;

pub(super) use self::{
    place::SetScan,
    slot::Claim,
    table::Table,
    word::{Word, Words},
};
