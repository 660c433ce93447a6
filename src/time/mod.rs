//! Timestamps and clocks. No other module of this crate reads time.
//!
//! | clock | use | cost of a reading | how early a client may come that waits `retry_after` by an exact clock |
//! |---|---|---|---|
//! | [`SystemClock`] | the default | 10 ns | up to 0.05 % of the wait, while a difference from Unix time is slewed away |
//! | `TokioClock`, feature `tokio` | tests that pause tokio's time | 30 ns | in time; the clock drifts from Unix time |
//! | `ManualClock`, feature `test-util` | tests | 2 ns | set by the test |
//!
//! A client that comes too early is refused once more, with the rest of the wait as the new
//! `retry_after`. Headers in whole seconds are rounded up, which mostly hides this.

mod clock;
#[cfg(any(test, feature = "test-util"))]
mod manual;
mod system;
mod timestamp;
#[cfg(feature = "tokio")]
mod tokio;

#[cfg(any(test, feature = "test-util"))]
pub use self::manual::ManualClock;
#[cfg(feature = "tokio")]
pub use self::tokio::TokioClock;
pub use self::{clock::Clock, system::SystemClock, timestamp::Timestamp};
