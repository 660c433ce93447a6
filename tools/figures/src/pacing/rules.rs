//! The rules that pace.

use tollgate::{AnyRule, FixedWindow, LeakyBucket, Quota, SlidingLog, SlidingWindow, TokenBucket};

/// Returns the rules of a rate, with the names of their columns.
pub(super) fn rules(rate: Quota) -> Result<Vec<(&'static str, AnyRule)>, String> {
    let sliced = SlidingWindow::new(rate).try_slices(4);
    let wrong = |error: tollgate::Error| format!("--rate \"{rate}\": {error}");
    Ok(vec![
        ("fixed_window", FixedWindow::new(rate).into()),
        ("sliding_log", SlidingLog::new(rate).into()),
        (
            "token_bucket",
            TokenBucket::try_new(rate).map_err(wrong)?.into(),
        ),
        ("sliding_window", SlidingWindow::new(rate).into()),
        ("sliding_window_4+1", sliced.map_err(wrong)?.into()),
        (
            "leaky_bucket_queue",
            LeakyBucket::try_new(rate).map_err(wrong)?.into(),
        ),
    ])
}
