//! Runtimes, for libraries that need one.

use tokio::runtime::{Builder, Runtime};

pub fn current_thread() -> Runtime {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
}

/// Its time goes on when it is told to.
pub fn paused() -> Runtime {
    Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .expect("a runtime")
}
