//! The text of a rule, not parsed.

use tollgate::RateLimitLayer;

fn main() {
    let _ = RateLimitLayer::new("token-bucket 100/1m");
}
