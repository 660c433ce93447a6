//! Background synchronisation: what a node knows of a key, what it admitted that the store does not know yet, and when to tell it.
//!
//! Nothing here reads a clock or does I/O: each function takes the time, and returns what the caller has to do. So the store wrapper
//! [`Synced`](crate::store::Synced) and a simulation run the same code.

mod account;
mod agenda;
mod book;
mod cut_off;
mod pressure;
#[cfg(test)]
mod proof;
mod store_clock;
mod traffic;
mod unsent;

pub(crate) use self::{
    account::{Account, Bound, Tried},
    agenda::{Agenda, Due, MOST_TOGETHER, together},
    book::{Book, Entry, Found},
    unsent::Unsent,
};
