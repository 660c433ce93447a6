//! The text of a rule, not parsed.
//~ 2 x error[E0277]: `&str` is not a rule that can decide
//~ `"token-bucket 100/1m".parse::<AnyRule>()?`

use tollgate::RateLimitLayer;

fn main() {
    let _ = RateLimitLayer::new("token-bucket 100/1m");
}
