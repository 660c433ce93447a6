//! Every interleaving of a few threads in the store in memory: one program, as each one optimizes
//! the store again.

mod growth;
mod in_flight;
mod map;
mod neighbours;
mod store;
mod table;
mod two_words;
