//! Dry runs in Redis: the counts are those of the model, whose rules do not refill during the test.

use proptest::{
    strategy::{Strategy, ValueTree},
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};
use support::servers;
use tollgate::{
    AnyRule, Cost, Limit, Policy, RateLimitLayer, Timestamp,
    store::{Redis, StoreExt},
};
use tower::ServiceExt;

use super::{
    ByClient, Calls, client,
    model::{Alone, Journal},
    rule, service, units,
};

#[tokio::test]
async fn counts_in_redis_are_those_of_each_rule_alone() {
    let server = servers::Redis::start();
    let store: Redis<AnyRule> = Redis::connect(server.url()).await.unwrap();
    let texts = [
        "token-bucket 1/400d burst=20",
        "token-bucket 1/400d burst=15",
        "sliding-log 25/1000d",
    ];
    let layer = RateLimitLayer::new(rule(texts[0]))
        .named("live")
        .key(ByClient)
        .cost(units)
        .store(store.fail_closed())
        .candidate("next", rule(texts[1]))
        .also(
            Limit::new(rule(texts[2]))
                .named("third")
                .key(ByClient)
                .cost(units)
                .dry_run()
                .compared_with(Policy::new("live")),
        );
    let service: Calls = service!(layer);
    let [mut live, mut next, mut third] = texts.map(|text| Alone::new(rule(text)));
    let (mut of_next, mut of_third) = (Journal::default(), Journal::default());
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let calls = proptest::collection::vec((0..5_u64, 1..6_u64), 150);
    let calls = calls.new_tree(&mut runner).unwrap().current();
    let at = Timestamp::from_nanos(1_767_225_600_000_000_000);
    for (of, units) in calls {
        let mut request = client(of);
        request.body_mut().units = units;
        let response = service.clone().oneshot(request).await.unwrap();
        let [live, next, third] =
            [&mut live, &mut next, &mut third].map(|rule| rule.decide(at, of, units));
        assert_eq!(
            response.status().is_success(),
            live == super::model::Would::Admit
        );
        of_next.note(of, next, Some(live));
        of_third.note(of, third, Some(live));
    }
    assert_eq!(layer.dry_run_report("next"), Some(of_next.report()));
    assert_eq!(layer.dry_run_report("third"), Some(of_third.report()));
    assert!(of_next.report().refused_alone > 0 && of_third.report().admitted_alone > 0);
}

/// A server that is gone: the live limit is closed, and its dry run alone lets everything pass.
#[tokio::test]
async fn a_dry_run_over_a_dead_redis_refuses_nothing() {
    let server = servers::Redis::start();
    let store: Redis<AnyRule> = Redis::connect(server.url()).await.unwrap();
    let layer = RateLimitLayer::new(rule("token-bucket 1/1d"))
        .key(ByClient)
        .cost(Cost::ONE)
        .store(store.fail_closed());
    let dry: Calls = service!(layer.clone().dry_run());
    let live: Calls = service!(layer);
    assert_eq!(dry.clone().oneshot(client(7)).await.unwrap().status(), 200);
    drop(server);
    assert_eq!(live.clone().oneshot(client(7)).await.unwrap().status(), 503);
    assert_eq!(dry.clone().oneshot(client(7)).await.unwrap().status(), 200);
}
