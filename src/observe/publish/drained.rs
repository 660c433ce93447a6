//! The counters of a responder that reads the bodies of refused requests.

use metrics::Label;

use super::Publish;
use crate::{
    observe::metrics::families::{REFUSED_BODIES, REFUSED_BODIES_IN_FLIGHT},
    respond::{DrainBodies, DrainStats},
};

impl Publish for DrainStats {
    fn publish(&self, name: &str) {
        let layer = || vec![Label::new("layer", name.to_owned())];
        for (outcome, count) in [
            ("finished", self.finished),
            ("failed", self.failed),
            ("given_up", self.given_up),
            ("crowded", self.crowded),
            ("no_runtime", self.no_runtime),
        ] {
            let mut labels = layer();
            labels.push(Label::from_static_parts("outcome", outcome));
            REFUSED_BODIES.set(labels, count);
        }
        REFUSED_BODIES_IN_FLIGHT.set(layer(), self.in_flight);
    }
}

impl<R> Publish for DrainBodies<R> {
    fn publish(&self, name: &str) {
        self.stats().publish(name);
    }
}
