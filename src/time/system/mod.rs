//! The clock of this process.

mod machine;
mod published;
mod slew;
mod steered;
mod system_clock;

#[cfg(feature = "tokio")]
pub(super) use self::machine::unix_nanos;
pub use self::system_clock::SystemClock;
