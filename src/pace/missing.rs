//! What the feature `tokio` would give: calling it says so.

use std::future::{Ready, ready};

use super::Pacer;
use crate::{algorithm::Algorithm, decision::Cost, missing::FeatureTokio};

impl<A: Algorithm, C> Pacer<A, C> {
    #[doc(hidden)]
    pub fn until_ready(&self) -> Ready<()>
    where
        A: FeatureTokio,
    {
        ready(())
    }

    #[doc(hidden)]
    pub fn until_ready_for(&self, _: Cost) -> Ready<()>
    where
        A: FeatureTokio,
    {
        ready(())
    }

    #[doc(hidden)]
    pub fn stream<S>(&self, inner: S) -> S
    where
        A: FeatureTokio,
    {
        inner
    }

    #[doc(hidden)]
    pub fn stream_by<S, F>(&self, inner: S, _: F) -> S
    where
        A: FeatureTokio,
    {
        inner
    }
}
