//! A boxed limit whose requests cannot carry the handle of a charge.
//~ error[E0277]: `u32` cannot carry a charge handle to its handler
//~ implement `tollgate::CarryHandle`

use tollgate::{BoxLimit, Limit, TokenBucket};

fn main() {
    let _: BoxLimit<u32, TokenBucket, String> = Limit::new(TokenBucket::per_second(10)).charge_handle().boxed();
}
