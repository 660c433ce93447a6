//! A store with blocks, none of which is made, decides as the store within.

use support::timelines;
use tollgate::{
    FixedWindow, TokenBucket,
    store::StoreExt,
    testing::{
        Fault, Faulty,
        conformance::{Law, Suite},
    },
};

use super::local;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_rule_keeps_the_laws_behind_blocks() {
    let (store, clock) = local();
    let suite = Suite::new(store.with_blocks()).clock(clock);
    let suite = suite.sleep(tokio::time::sleep).spawn(tokio::spawn);
    let report = suite.timelines(timelines()).run().await.unwrap();
    assert_eq!(report.left_out(), [Law::Fault]);
    assert!(report.calls() > 10_000, "{report}");
}

/// The answers come later, so that each call is made of several.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stores_that_answer_later_keep_the_laws_behind_blocks() {
    let (store, clock) = local();
    let faulty = Faulty::new(store);
    faulty.faults().always(Fault::Late(1));
    let rules = [
        TokenBucket::per_second(3),
        TokenBucket::per_minute(7).burst(4),
    ];
    let suite = Suite::with_rules(faulty.with_blocks(), rules).clock(clock);
    let suite = suite.sleep(tokio::time::sleep).spawn(tokio::spawn);
    let report = suite.timelines(timelines()).run().await.unwrap();
    assert_eq!(report.left_out(), [Law::Fault]);

    let (store, clock) = local();
    let rules = [FixedWindow::per_minute(7), FixedWindow::per_hour(9)];
    let store = store.boxed().with_blocks().fail_open().with_blocks();
    let suite = Suite::with_rules(store, rules).clock(clock);
    let suite = suite.sleep(tokio::time::sleep).spawn(tokio::spawn);
    let report = suite.timelines(timelines()).run().await.unwrap();
    assert_eq!(report.left_out(), [Law::Fault]);
}
