//! Counters of which each thread writes a copy of its own.
//!
//! All threads would write one line of cache otherwise, which takes longer than a decision. The
//! number of a thread is given once, so an event is one addition.

use std::{
    cell::Cell,
    iter,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread::available_parallelism,
};

use crate::stats::Counter;

/// Counters in copies on different cache lines, so that threads do not contend for one line. Clones
/// share them.
///
/// There are twice as many copies as threads can run, since threads of runtimes come and go. More
/// threads than that share copies.
#[derive(Debug)]
pub(crate) struct Striped<T> {
    /// A power of two of them.
    stripes: Arc<[Stripe<T>]>,
}

/// The counters of some threads, on cache lines of their own. Processors fetch lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe<T>(T);

/// The maximum number of stripes.
const MOST: usize = 128;

impl<T> Striped<T> {
    /// Returns the counters that this thread writes.
    #[inline]
    pub(crate) fn of_this_thread(&self) -> &T {
        // Always there: the number of stripes is a power of two.
        &self.stripes[thread_number() & (self.stripes.len() - 1)].0
    }

    /// Returns the sum of one counter over all threads.
    pub(crate) fn sum(&self, counter: impl Fn(&T) -> &Counter) -> u64 {
        let counts = self.stripes.iter().map(|stripe| counter(&stripe.0).get());
        counts.fold(0, u64::wrapping_add)
    }
}

impl<T: Default> Default for Striped<T> {
    fn default() -> Self {
        let stripes = iter::repeat_with(Stripe::default);
        Self {
            stripes: stripes.take(number_of_stripes()).collect(),
        }
    }
}

impl_clone!(Striped<T>, { stripes });

thread_local! {
    /// The number of this thread, from 1 on; 0 before its first count.
    static THREAD: Cell<usize> = const { Cell::new(0) };
}

static LAST_THREAD: AtomicUsize = AtomicUsize::new(0);

/// Returns a number of this thread. Threads are numbered as they come, so few of them share a
/// stripe.
#[inline]
fn thread_number() -> usize {
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

/// Returns the number of stripes, a power of two.
fn number_of_stripes() -> usize {
    let threads = available_parallelism().map_or(8, usize::from);
    threads.saturating_mul(2).clamp(1, MOST).next_power_of_two()
}
