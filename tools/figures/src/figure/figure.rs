//! The trait of figures.

use super::{products::Products, progress::Progress};

/// A figure and its parameters.
///
/// Its fields are the flags of its command, so it derives [`clap::Args`]. The default of each flag
/// is the figure of the pages.
pub(crate) trait Figure: Send + Sync {
    /// Returns the name of the figure, which is also its command.
    fn name(&self) -> &'static str;

    /// Makes the tables and pictures. Equal parameters and seeds give equal bytes.
    ///
    /// # Errors
    ///
    /// One line that says what is wrong with the parameters, and what to do.
    fn make(&self, seed: u64, progress: &Progress<'_>) -> Result<Products, String>;
}
