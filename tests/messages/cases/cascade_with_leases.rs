//! A cascade in Redis, whose classes cannot be granted ahead.
//~ 2 x error[E0277]: units of the rule `tollgate::Cascade` cannot be leased
//~ for another rule leave `.leased(…)` out

use tollgate::{algorithm::Cascade, prelude::*, store::LeaseConfig};

fn main() {
    let redis = Redis::<Cascade>::builder("redis://127.0.0.1").connect_lazy().unwrap();
    let store = redis.leased(LeaseConfig::new()).fail_open();
    let rule: Cascade = "cascade 10/s > 5/s".parse().unwrap();
    let _ = RateLimitLayer::new(rule).store(store);
}
