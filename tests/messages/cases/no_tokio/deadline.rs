//! A deadline for a store, without what waits.
//~ error[E0277]: this method needs the feature `tokio` of tollgate
//~ StoreExt::timeout`

use std::time::Duration;

use tollgate::{TokenBucket, prelude::*, store::{BoxStore, StoreError}};

fn store(remote: BoxStore<TokenBucket, StoreError>) {
    let _ = remote.timeout(Duration::from_millis(100)).fail_open();
}

fn main() {
    let _ = store;
}
