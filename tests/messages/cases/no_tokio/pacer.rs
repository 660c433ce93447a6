//! A worker that waits for its budget, without what waits.
//~ 4 x error[E0277]: this method needs the feature `tokio` of tollgate
//~ <impl Pacer<A, C>>::until_ready`
//~ <impl Pacer<A, C>>::until_ready_for`
//~ <impl Pacer<A, C>>::stream`
//~ <impl Pacer<A, C>>::stream_by`

use tollgate::{Cost, TokenBucket, pace::Pacer};

async fn work(pacer: Pacer<TokenBucket>) {
    pacer.until_ready().await;
    pacer.until_ready_for(Cost::ONE).await;
    let _ = pacer.stream([1, 2, 3]);
    let _ = pacer.stream_by([1, 2, 3], |_: &i32| Cost::ONE);
}

fn main() {
    let _ = work;
}
