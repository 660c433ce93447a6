//! One part of a counter for each thread.

use std::{
    cell::Cell,
    sync::atomic::{AtomicUsize, Ordering},
    thread::available_parallelism,
};

/// Maximum number of stripes: 16 KiB of counters.
const MOST: usize = 128;

thread_local! {
    /// The number of this thread, from 1 on; 0 before its first event.
    static THREAD: Cell<usize> = const { Cell::new(0) };
}

static LAST_THREAD: AtomicUsize = AtomicUsize::new(0);

/// Returns a number of this thread. Threads are numbered as they come, so few of them share a stripe.
#[inline]
pub(super) fn thread_number() -> usize {
    match THREAD.get() {
        0 => number_thread(),
        number => number,
    }
}

#[cold]
fn number_thread() -> usize {
    // Relaxed: only that the numbers differ matters. After an overflow, a thread may ask again.
    let number = LAST_THREAD.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
    THREAD.set(number);
    number
}

/// Returns a number of stripes, a power of two: twice as many as threads can run, since threads of runtimes come and go.
pub(super) fn number_of_stripes() -> usize {
    let threads = available_parallelism().map_or(8, usize::from);
    threads.saturating_mul(2).clamp(1, MOST).next_power_of_two()
}
