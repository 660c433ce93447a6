use tower::Layer;
use tower_governor::{
    GovernorLayer,
    governor::GovernorConfigBuilder,
    key_extractor::{PeerIpKeyExtractor, SmartIpKeyExtractor},
};

use super::{Both, Budget, Library, Rule};
use crate::service::{self, Service};

pub struct TowerGovernor;

type PeerLayer = GovernorLayer<
    PeerIpKeyExtractor,
    governor::middleware::StateInformationMiddleware,
    axum::body::Body,
>;

fn layer(rule: Rule) -> PeerLayer {
    let mut builder = GovernorConfigBuilder::default();
    builder
        .period(rule.period / rule.units)
        .burst_size(rule.units);
    GovernorLayer::new(
        builder
            .use_headers()
            .finish()
            .expect("a rule of more than nothing"),
    )
}

impl Library for TowerGovernor {
    fn package(&self) -> &'static str {
        "tower_governor"
    }

    fn minimal(&self) -> &'static str {
        r#"default-features = false, features = ["axum"]"#
    }

    fn budget(&self, rule: Rule, _keys: Option<usize>) -> Budget {
        service::budget(service::layered(&layer(rule)))
    }

    fn layer(&self, rule: Rule) -> Option<Box<dyn Fn() -> Budget>> {
        let layer = layer(rule);
        Some(Box::new(move || service::budget(service::layered(&layer))))
    }

    fn http(&self, rule: Rule) -> Option<Service> {
        Some(service::layered(&layer(rule)))
    }

    fn behind_proxy(&self, rule: Rule) -> Option<Service> {
        let mut builder = GovernorConfigBuilder::default();
        builder
            .period(rule.period / rule.units)
            .burst_size(rule.units);
        let config = builder.key_extractor(SmartIpKeyExtractor).finish();
        Some(service::layered(&GovernorLayer::new(
            config.expect("a rule of more than nothing"),
        )))
    }

    fn both(&self, first: Rule, second: Rule) -> Option<Both> {
        let first = layer(first);
        let both = first.layer(service::layered(&layer(second)));
        Some(Both {
            both: service::budget(Service::new(both)),
            first: service::budget(service::layered(&first)),
        })
    }

    fn algorithms(&self, rule: Rule) -> Vec<(&'static str, Budget)> {
        vec![("GCRA", self.budget(rule, None))]
    }
}
