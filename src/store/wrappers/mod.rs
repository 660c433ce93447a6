//! What stores can be wrapped in.
//!
//! Each wrapper does one thing, keeps count of it, and is a store again. All are called on a store through
//! [`StoreExt`](super::StoreExt), which has a table of them, and the order that serves most.

mod circuit_breaker;
mod fall_back;
mod remember;
#[cfg(feature = "tokio")]
mod timeout;

#[cfg(feature = "tokio")]
pub use self::timeout::{Timeout, TimeoutFuture};
pub use self::{
    circuit_breaker::{BreakerFuture, CircuitBreaker, CircuitBreakerConfig, CircuitState},
    fall_back::{FallBackBuilder, FallBackDone, FallBackFuture, FallBackTo, Scalable},
    remember::{ForgetFuture, RememberFuture, RememberRefusals},
};
