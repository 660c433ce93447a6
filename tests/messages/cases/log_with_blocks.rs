//! A sliding log cannot express a block.

use tollgate::{SlidingLog, prelude::*};

fn main() {
    let store = Local::new().with_blocks();
    let _ = RateLimitLayer::new(SlidingLog::per_minute(10)).store(store);
}
