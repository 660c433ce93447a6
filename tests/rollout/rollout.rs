//! A roll-out: a process of the former release and one of this release serve the same keys, in one
//! Redis and one memcached. Together they admit what one release alone admits.
//!
//! The former release is a dependency, because stored bytes show that a form can be read, not that
//! two releases count alike when each reads what the other wrote.
#![allow(clippy::unwrap_used, reason = "a test that fails panics")]
#![allow(clippy::disallowed_methods, reason = "servers live in real time")]

mod bounds;
mod exact;
mod kinds;
mod paced;
mod release;
mod retries;
mod settlements;
mod wrappers;

use std::sync::Arc;

use support::servers;
use tokio::{sync::RwLock, task::JoinSet};

use self::release::{Rollout, Target, stores_of};

/// Held by tests that need their share of the processors, against those that take all of it.
static TIMED: RwLock<()> = RwLock::const_new(());

/// Runs all tasks concurrently.
async fn all(tasks: impl IntoIterator<Item = impl Future<Output = ()> + Send + 'static>) {
    let mut tasks: JoinSet<()> = tasks.into_iter().collect();
    while let Some(done) = tasks.join_next().await {
        if let Err(error) = done {
            std::panic::resume_unwind(error.into_panic());
        }
    }
}

/// Runs a check of each rule, in each store that runs it, with each release as the first one.
///
/// Each check has a key of its own, and all checks run concurrently.
async fn in_both_orders<T: Copy, F: Future<Output = ()> + Send + 'static>(
    rules: impl IntoIterator<Item = (&'static str, T)>,
    check: impl Fn(Arc<Rollout>, Target<'static>, usize, T) -> F,
) {
    let rollout = Rollout::start().await;
    let mut tasks = Vec::new();
    for (rule, expected) in rules {
        for first in [0, 1] {
            let key = format!("{first}:{rule}").replace(' ', "_").leak();
            for store in stores_of(rule) {
                let target = Target { store, key, rule };
                tasks.push(check(Arc::clone(&rollout), target, first, expected));
            }
        }
    }
    all(tasks).await;
    rollout.end().await;
}
