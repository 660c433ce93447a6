//! Timestamps and clocks. No other module of this crate reads time.
//!
//! | clock | use | cost of a reading | a client that waits `retry_after` by an exact clock is early by |
//! |---|---|---|---|
//! | [`SystemClock`] | the default | 10 ns | up to 0.05 % of the wait, while a difference from Unix time is slewed away |
//! | `TokioClock`, feature `tokio` | tests that pause tokio's time | 30 ns | nothing; the clock drifts from Unix time |
//! | `ManualClock`, feature `test-util` | tests | 2 ns | set by the test |
//!
//! A client that is too early is refused once more, with the rest of the wait as the new
//! `retry_after`. Headers in whole seconds are rounded up, which mostly hides this.

mod clock;
#[cfg(feature = "tokio")]
mod lease_clock;
#[cfg(any(test, feature = "test-util"))]
mod manual_clock;
mod system;
mod timestamp;
#[cfg(feature = "tokio")]
mod tokio_clock;

#[cfg(feature = "tokio")]
pub use self::lease_clock::LeaseClock;
#[cfg(any(test, feature = "test-util"))]
pub use self::manual_clock::ManualClock;
#[cfg(feature = "tokio")]
pub use self::tokio_clock::TokioClock;
pub use self::{clock::Clock, system::SystemClock, timestamp::Timestamp};
