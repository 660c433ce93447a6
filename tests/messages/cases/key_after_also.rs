//! Settings of a layer that has several limits: nothing says of which.
//~ 8 x error[E0277]: a layer with several limits has no `key`, `rule`, `cost`, `named`, `charge_if`, `dry_run` and the like of its own
//~ set those of the first limit before `.also(…)`

use tollgate::{BoxLimit, Cost, Limit, Policy, RateLimitLayer, TokenBucket, key::PeerIp};

fn main() {
    let layer = || {
        RateLimitLayer::new(TokenBucket::per_second(10))
            .also(Limit::new(TokenBucket::per_hour(1000)).named("hourly"))
    };
    let _ = layer().key(PeerIp::new());
    let _ = layer().rule(|_: &String| None);
    let _ = layer().cost(Cost::ONE);
    let _ = layer().named("api");
    let _ = layer().policy(Policy::new("api"));
    let _ = layer().charge_if(|_: &String| true);
    let _ = layer().dry_run();

    let limit: BoxLimit<String, TokenBucket, String> = Limit::new(TokenBucket::per_second(10)).boxed();
    let _ = RateLimitLayer::list(vec![limit]).unwrap().key(PeerIp::new());
}
