//! Stores of your own that decide under a lock or in a transaction.
//!
//! | file | |
//! |---|---|
//! | `transact` | the trait that the author of a store implements |
//! | `store` | the store |
//! | `transaction` | one call: the states that it needs, and the changes of its decision |

mod store;
mod transact;
mod transaction;

pub use self::{
    store::Transactional,
    transact::Transact,
    transaction::{Change, Transaction},
};
