//! The progress bar.

use std::{
    io::{IsTerminal, Write, stderr},
    sync::atomic::{AtomicU64, Ordering},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The parts of a figure on the bar.
const PARTS: u64 = 1000;

/// A bar on standard error. If that is no terminal, a line per figure instead.
pub(crate) struct Bar(Option<ProgressBar>);

impl Bar {
    /// Starts the bar of so many figures.
    pub(crate) fn start(figures: usize) -> Self {
        if !stderr().is_terminal() {
            return Self(None);
        }
        let bar = ProgressBar::with_draw_target(
            Some(PARTS * figures as u64),
            ProgressDrawTarget::stderr_with_hz(10),
        );
        // A constant template; if it is wrong, the usual bar is shown.
        if let Ok(style) = ProgressStyle::with_template("{wide_bar} {percent} % {msg}") {
            bar.set_style(style);
        }
        Self(Some(bar))
    }

    /// Returns the part of the bar that belongs to a figure.
    pub(crate) fn figure(&self, name: &'static str) -> Progress<'_> {
        if let Some(bar) = &self.0 {
            bar.set_message(name);
        }
        Progress {
            bar: self,
            name,
            shown: AtomicU64::new(0),
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}

/// The progress of one figure.
pub(crate) struct Progress<'a> {
    bar: &'a Bar,
    name: &'static str,
    shown: AtomicU64,
}

impl Progress<'_> {
    /// Shows that `done` of `whole` steps are made. Steps may be reported from several threads, in
    /// any order.
    pub(crate) fn step(&self, done: u64, whole: u64) {
        let parts = PARTS.min(done.saturating_mul(PARTS) / whole.max(1));
        let before = self.shown.fetch_max(parts, Ordering::Relaxed);
        if let Some(bar) = self.bar.0.as_ref().filter(|_| before < parts) {
            bar.inc(parts - before);
        }
    }

    /// Shows that the files of the figure are written.
    pub(crate) fn finish(&self) {
        self.step(1, 1);
        if self.bar.0.is_none() {
            // If standard error is closed, there is nowhere to report it.
            let _ = writeln!(stderr(), "figures: {} is written", self.name);
        }
    }
}
