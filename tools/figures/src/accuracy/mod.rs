//! The figure `accuracy`.

use crate::figure::{Figure, Products, Progress};

/// The parameters of the figure.
#[derive(clap::Args)]
pub(crate) struct Accuracy {}

impl Figure for Accuracy {
    fn name(&self) -> &'static str {
        "accuracy"
    }

    fn make(&self, _: u64, _: &Progress<'_>) -> Result<Products, String> {
        Ok(Products::default())
    }
}
