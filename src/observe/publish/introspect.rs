//! The counters of a layer of introspection.

use metrics::Label;

use super::Publish;
use crate::{
    key::introspect::{Introspect, IntrospectStats},
    observe::metrics::families::{
        INTROSPECT_ABORTED, INTROSPECT_CROWDED, INTROSPECT_EXPIRED, INTROSPECT_FAILED,
        INTROSPECT_HITS, INTROSPECT_IN_FLIGHT, INTROSPECT_INVALID, INTROSPECT_LOOKUPS,
        INTROSPECT_REQUESTS, INTROSPECT_SHARED, INTROSPECT_TIMEOUTS, INTROSPECT_TOKENS,
    },
};

impl Publish for IntrospectStats {
    fn publish(&self, name: &str) {
        let layer = || vec![Label::new("layer", name.to_owned())];
        INTROSPECT_HITS.set(layer(), self.hits);
        INTROSPECT_LOOKUPS.set(layer(), self.lookups);
        INTROSPECT_SHARED.set(layer(), self.shared);
        INTROSPECT_FAILED.set(layer(), self.failed);
        INTROSPECT_TIMEOUTS.set(layer(), self.timeouts);
        INTROSPECT_INVALID.set(layer(), self.invalid_answers);
        INTROSPECT_ABORTED.set(layer(), self.aborted);
        INTROSPECT_EXPIRED.set(layer(), self.expired);
        INTROSPECT_CROWDED.set(layer(), self.crowded);
        INTROSPECT_IN_FLIGHT.set(layer(), self.in_flight);
        for (outcome, count) in [
            ("anonymous", self.anonymous),
            ("inactive", self.inactive),
            ("malformed", self.malformed),
            ("stale", self.stale),
            ("unavailable", self.unavailable),
            ("unchecked", self.unchecked),
        ] {
            let mut labels = layer();
            labels.push(Label::from_static_parts("outcome", outcome));
            INTROSPECT_REQUESTS.set(labels, count);
        }
        for (state, count) in [("active", self.cached), ("inactive", self.cached_inactive)] {
            let mut labels = layer();
            labels.push(Label::from_static_parts("state", state));
            INTROSPECT_TOKENS.set(labels, count);
        }
    }
}

impl<R> Publish for Introspect<R> {
    fn publish(&self, name: &str) {
        self.stats().publish(name);
    }
}
