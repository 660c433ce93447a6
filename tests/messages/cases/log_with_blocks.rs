//! A sliding log cannot express a block.
//~ error[E0277]: the rule `tollgate::SlidingLog` cannot express a block
//~ as in `AnyRule::from(rule)`

use tollgate::{SlidingLog, prelude::*};

fn main() {
    let store = Local::new().with_blocks();
    let _ = RateLimitLayer::new(SlidingLog::per_minute(10)).store(store);
}
