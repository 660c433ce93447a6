//! The counters of a layer.

use metrics::Label;

use super::Publish;
use crate::{
    middleware::RateLimitLayer,
    observe::metrics::families::{
        LAYER_CANCELLED, LAYER_COLLISIONS, LAYER_MISCONFIGURED, LAYER_UNSETTLED,
    },
    store::Backend,
};

impl<L, S: Backend, R, O> Publish for RateLimitLayer<L, S, R, O> {
    fn publish(&self, name: &str) {
        let layer = || vec![Label::new("layer", name.to_owned())];
        LAYER_CANCELLED.set(layer(), self.cancelled());
        LAYER_COLLISIONS.set(layer(), self.collisions());
        LAYER_MISCONFIGURED.set(layer(), self.misconfigured());
        LAYER_UNSETTLED.set(layer(), self.unsettled());
    }
}
