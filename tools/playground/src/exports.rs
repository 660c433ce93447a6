//! The functions that the page calls, and the memory that both use.
//!
//! The page asks for a buffer, fills it, and calls [`simulate`]. It then reads the report. A pointer
//! is valid until the next call. A page has one thread, so the lock is never contended.

#![expect(
    unsafe_code,
    reason = "a page finds functions by their names alone, which `no_mangle` keeps: all are safe, and nothing else that \
              is linked here exports such names"
)]

use std::sync::{Mutex, PoisonError};

use crate::{json, report::Axis, simulation};

/// The memory that the page writes and reads.
#[derive(Default)]
struct Shared {
    rule: Vec<u8>,
    arrivals: Vec<u32>,
    report: String,
}

static SHARED: Mutex<Shared> = Mutex::new(Shared {
    rule: Vec::new(),
    arrivals: Vec::new(),
    report: String::new(),
});

fn with<T>(use_it: impl FnOnce(&mut Shared) -> T) -> T {
    use_it(&mut SHARED.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Returns where the page writes the text of the rule, of so many bytes.
#[unsafe(no_mangle)]
extern "C" fn rule_buffer(bytes: usize) -> *mut u8 {
    with(|shared| {
        shared.rule.resize(bytes, 0);
        shared.rule.as_mut_ptr()
    })
}

/// Returns where the page writes the milliseconds at which so many requests arrive.
#[unsafe(no_mangle)]
extern "C" fn arrivals_buffer(count: usize) -> *mut u32 {
    with(|shared| {
        shared.arrivals.resize(count, 0);
        shared.arrivals.as_mut_ptr()
    })
}

/// Decides on the requests in the buffers. Returns the length of the report in bytes.
#[unsafe(no_mangle)]
extern "C" fn simulate(width_ms: u32, columns: u32) -> usize {
    with(|shared| {
        let text = String::from_utf8_lossy(&shared.rule);
        let axis = Axis { width_ms, columns };
        let result = simulation::simulate(&text, &shared.arrivals, axis);
        shared.report = json::write(&result);
        shared.report.len()
    })
}

/// Returns where the report of the last simulation is.
#[unsafe(no_mangle)]
extern "C" fn report() -> *const u8 {
    with(|shared| shared.report.as_ptr())
}
