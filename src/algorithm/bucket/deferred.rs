//! Numbers of a decision on a bucket that is counted in ticks, computed when they are read.
//!
//! A deferred state begins with the level, the price of a token and the level of a full bucket, in ticks, and the nanoseconds
//! until the clock has caught up with the last write.

use std::time::Duration;

use crate::{algorithm::wait::after_ticks, decision::DeferredState};

/// Returns the tokens of a bucket that is counted in ticks.
#[inline]
pub(in crate::algorithm) fn remaining(&[level, price, ..]: &DeferredState) -> u64 {
    (level as i64).max(0) as u64 / price
}

/// Returns the wait until such a bucket has one token more; zero if it is full.
#[inline]
pub(in crate::algorithm) fn more_after(
    &[level, price, full, stalled, ..]: &DeferredState,
    remaining: u64,
) -> Duration {
    let lacking = ((remaining + 1) * price).wrapping_sub(level);
    after_ticks(stalled, if level == full { 0 } else { lacking })
}
