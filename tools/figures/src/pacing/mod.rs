//! The figure `pacing`.

use crate::figure::{Figure, Products, Progress};

/// The parameters of the figure.
#[derive(clap::Args)]
pub(crate) struct Pacing {}

impl Figure for Pacing {
    fn name(&self) -> &'static str {
        "pacing"
    }

    fn make(&self, _: u64, _: &Progress<'_>) -> Result<Products, String> {
        Ok(Products::default())
    }
}
