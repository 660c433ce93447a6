//! Rate limits in DynamoDB, and a template for a managed store.
//!
//! The parts that a store author writes are the `impl CompareAndSwap` in `compare_and_swap.rs`, for
//! every rule, and the `impl Increment` in `increment.rs`, for windows. `README.md` explains them
//! step by step.
//!
//! ```no_run
//! use tollgate::{prelude::*, store::driver::CasStore};
//! use tollgate_dynamodb::{Dynamo, Place};
//!
//! # async fn doc() -> Result<(), tollgate::Error> {
//! let dynamo = Dynamo::connect(Place::from_environment()?, "limits");
//! let store = CasStore::<_, TokenBucket>::new(dynamo).fail_closed();
//! let layer = RateLimitLayer::new(TokenBucket::per_second(10)).key(PeerIp::new()).store(store);
//! # let _ = layer; Ok(()) }
//! ```

mod capacity;
mod compare_and_swap;
mod dynamo;
mod failure;
mod increment;
mod item;
mod place;
mod table;

pub use self::{capacity::Capacity, dynamo::Dynamo, place::Place};
