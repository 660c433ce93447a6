//! Signals that end the programs.

use tokio::signal::{
    ctrl_c,
    unix::{SignalKind, signal},
};

/// Waits for Ctrl-C or SIGTERM.
pub(crate) async fn interrupted() {
    let Ok(mut terminated) = signal(SignalKind::terminate()) else {
        // No handler could be installed, so a signal ends the program.
        return std::future::pending().await;
    };
    tokio::select! {
        _ = ctrl_c() => {}
        _ = terminated.recv() => {}
    }
}
