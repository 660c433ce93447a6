//! A roll-out: a process of the former release and one of this release serve the same keys, in one Redis and one memcached. Both
//! together admit what one release alone admits.
#![allow(clippy::unwrap_used, reason = "a test that fails panics")]
#![allow(clippy::disallowed_methods, reason = "servers live in real time")]

#[path = "../servers/mod.rs"]
mod servers;

mod bounds;
mod exact;
mod kinds;
mod paced;
mod release;
mod retries;
mod settlements;

use tokio::task::JoinSet;

/// Runs all of them at once.
async fn all(tasks: impl IntoIterator<Item = impl Future<Output = ()> + Send + 'static>) {
    let mut tasks: JoinSet<()> = tasks.into_iter().collect();
    while let Some(done) = tasks.join_next().await {
        if let Err(error) = done {
            std::panic::resume_unwind(error.into_panic());
        }
    }
}

/// Draws numbers below `end` (splitmix64).
fn random(mut seed: u64) -> impl FnMut(u64) -> u64 {
    move |end| {
        seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = seed;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ word >> 31) % end
    }
}
