//! Stores that are broken in one way each, and the law that detects it.

use std::{sync::atomic::Ordering, time::Duration};

use support::timelines;
use tollgate::{
    AnyRule, TokenBucket,
    store::{Local, LocalBuilder},
    testing::{
        Alternating, Fault, Faulty,
        conformance::{Broken, Law, Suite},
    },
    time::ManualClock,
};

use super::{
    flawed::{Flaw, Flawed},
    memory::{Memory, Ways, driver},
    rules::{RULES, rule},
};

fn suite(flaw: Flaw) -> Suite<AnyRule, Flawed> {
    with(flaw, Suite::new)
}

/// For tests that run all laws again and again: a rule of each kind, and a composition.
fn brief_suite(flaw: Flaw) -> Suite<AnyRule, Flawed> {
    let rules = RULES[..10].iter().copied().map(rule);
    with(flaw, |store| Suite::with_rules(store, rules)).timelines(timelines())
}

/// With paused time, a call that never returns is detected at once.
fn with(
    flaw: Flaw,
    suite: impl FnOnce(Flawed) -> Suite<AnyRule, Flawed>,
) -> Suite<AnyRule, Flawed> {
    let clock = ManualClock::default();
    let store = Flawed::new(&clock, flaw);
    let is_faulty = store.is_faulty.clone();
    suite(store)
        .clock(clock)
        .sleep(tokio::time::sleep)
        .spawn(tokio::spawn)
        .fault(move |on| is_faulty.store(on, Ordering::SeqCst))
}

fn laws(broken: &Broken) -> Vec<Law> {
    broken.laws().collect()
}

#[tokio::test(start_paused = true)]
async fn each_flaw_breaks_its_law() {
    let flaws = [
        (Flaw::AdmitsOneMore, Law::Limit),
        (Flaw::AdmitsOneLess, Law::Limit),
        (Flaw::ForgetsCost, Law::Limit),
        (Flaw::CountsUp, Law::Limit),
        (Flaw::FailsOnce, Law::Limit),
        (Flaw::IgnoresTheKeysOwnRule, Law::Limit),
        (Flaw::ChargesRefusals, Law::Refusal),
        (Flaw::OversizeClears, Law::Never),
        (Flaw::OversizeIsToldAWait, Law::Never),
        (Flaw::LookSpends, Law::Look),
        (Flaw::LookIsStale, Law::Look),
        (Flaw::RetryTooEarly, Law::Wait),
        (Flaw::RetryTooLate, Law::Wait),
        (Flaw::TimeStands, Law::Wait),
        (Flaw::MintsAsTheClockStepsBack, Law::Wait),
        (Flaw::ForgetsFirstSight, Law::Wait),
        (Flaw::ForgetsTooEarly, Law::Timeline),
        (Flaw::MixesPolicies, Law::Keys),
        (Flaw::MixesKinds, Law::Keys),
        (Flaw::CutsKeys, Law::Keys),
        (Flaw::JoinsNames, Law::Keys),
        (Flaw::TellsUnitsApart, Law::Keys),
        (Flaw::KeepsEarlierAsks, Law::Several),
        (Flaw::AnswersInReverse, Law::Several),
        (Flaw::DecidesOnOneState, Law::Several),
        (Flaw::ChargesWhereOthersRefuse, Law::Several),
        (Flaw::LosesSettlements, Law::Settle),
        (Flaw::RefundMints, Law::Settle),
        (Flaw::RefundOfTheForgottenMints, Law::Settle),
        (Flaw::RenewsNothing, Law::Renew),
        (Flaw::RenewsTwice, Law::Renew),
        (Flaw::RenewsForGood, Law::Renew),
        (Flaw::RenewsInTwoSteps, Law::Renew),
        (Flaw::DeniesRenewals, Law::Renew),
        (Flaw::ClaimsLostRenewals, Law::Renew),
        (Flaw::ResetDoesNothing, Law::Reset),
        (Flaw::ResetsAllPolicies, Law::Reset),
        (Flaw::MintsOnChange, Law::Change),
        (Flaw::RemembersRefusalsOfKeys, Law::Reserve),
        (Flaw::OneKindAtATime, Law::Kinds),
        (Flaw::ResetsOneKind, Law::Kinds),
        (Flaw::SettlesBack, Law::Race),
        (Flaw::LosesUpdates, Law::Race),
        (Flaw::LosesRefunds, Law::Race),
        (Flaw::Panics, Law::Race),
        (Flaw::ChargesDroppedTwice, Law::Cancel),
        (Flaw::DroppedBlocks, Law::Cancel),
        (Flaw::ChargesFaultsTwice, Law::Fault),
        (Flaw::StaysFaulty, Law::Fault),
        (Flaw::InventsNumbers, Law::Fault),
        (Flaw::LosesNodes, Law::Nodes),
        (Flaw::RepeatsDeltas, Law::Sync),
        (Flaw::RacesDeltas, Law::Sync),
        (Flaw::DeltasComeNow, Law::Sync),
        (Flaw::DeltasAnswerEarly, Law::Sync),
        (Flaw::DeltasAnswerInReverse, Law::Sync),
    ];
    for (flaw, law) in flaws {
        let Err(broken) = suite(flaw).only(law).run().await else {
            panic!("{flaw:?} is not detected by {law:?}");
        };
        assert_eq!(laws(&broken), [law], "{flaw:?}");
        let text = broken.to_string();
        assert!(text.contains(&law.to_string()), "{flaw:?}: {text}");
        assert!(text.contains("\n  under "), "{flaw:?}: {text}");
        assert!(!text.contains("not checked"), "{flaw:?}: {text}");
    }
    for law in Law::ALL {
        let is_seen = flaws.iter().any(|(_, seen_by)| *seen_by == law);
        assert!(is_seen, "nothing shows that {law:?} can fail");
    }
}

/// Flaws that only one law can detect.
#[tokio::test(start_paused = true)]
async fn a_flaw_breaks_no_law_that_it_does_not_touch() {
    let flaws = [
        (Flaw::FailsOnce, [Law::Limit]),
        (Flaw::TimeStands, [Law::Wait]),
        (Flaw::MixesKinds, [Law::Keys]),
        (Flaw::JoinsNames, [Law::Keys]),
        (Flaw::TellsUnitsApart, [Law::Keys]),
        (Flaw::ResetsAllPolicies, [Law::Reset]),
        (Flaw::LosesRefunds, [Law::Race]),
        (Flaw::ChargesDroppedTwice, [Law::Cancel]),
        (Flaw::ChargesFaultsTwice, [Law::Fault]),
        (Flaw::LosesNodes, [Law::Nodes]),
        (Flaw::RacesDeltas, [Law::Sync]),
    ];
    for (flaw, expected) in flaws {
        let broken = brief_suite(flaw).run().await.unwrap_err();
        assert_eq!(laws(&broken), expected, "{flaw:?}: {broken}");
        assert_eq!(broken.report().kept().len(), Law::ALL.len() - 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_contains_the_expectation_and_the_timeline() {
    let broken = suite(Flaw::AdmitsOneMore).run().await.unwrap_err();
    let text = broken.to_string();
    let begin = "\
18 of 19 laws do not hold

limit: a rule admits exactly its limit
  under AnyRule(token-bucket 5/1h): the store answers
    allowed, 0 of 5 left, charged 1
  but its rule, at the instant of the answer, decides
    refused, retry after 720s, 0 of 5 left, more after 720s, reset after 3600s
  after
    look at alice: allowed, 5 of 5 left
    acquire 1 of alice: allowed, 4 of 5 left, more after 720s, reset after 720s, charged 1
";
    assert!(text.starts_with(begin), "{text}");
    assert!(text.contains(
        "concurrent callers share one limit\n  under AnyRule(token-bucket 5/1h): \
         6 calls for 1 passed, but its rule lets 5 pass at once\n  after\n    look at hot: allowed, 5 of 5 left\n    \
         8 tasks race for one key, with 2 calls each for 1"
    ));
    assert_eq!(format!("{broken:?}"), format!("Broken({text})"));
}

/// The seed in a message reproduces the timeline.
#[tokio::test(start_paused = true)]
async fn a_broken_timeline_can_be_run_again() {
    // Rules that depend on neither the calendar nor the names of the keys.
    let rules = ["token-bucket 20/1s burst=3", "leaky-bucket 6/1h queue=5"];
    let timelines = || {
        let clock = ManualClock::default();
        let store = Flawed::new(&clock, Flaw::ForgetsTooEarly);
        let rules = rules.map(|text| text.parse().unwrap());
        let suite = Suite::with_rules(store, rules).clock(clock);
        suite.only(Law::Timeline).timelines(1_000)
    };
    let text = timelines().run().await.unwrap_err().to_string();
    let (_, seed) = text.split_once("`.only(Law::Timeline).seed(").unwrap();
    let (seed, _) = seed.split_once(')').unwrap();
    let seed = seed.parse().unwrap();
    let again = || timelines().seed(seed).timelines(1);
    let [first, second] = [again().run().await, again().run().await].map(Result::unwrap_err);
    // Only the clock differs, as earlier timelines have advanced it.
    assert_eq!(first.to_string(), second.to_string());
    assert!(first.to_string().contains(&format!("seed({seed})")));
}

/// Waits may be rounded up to the resolution that a store declares, and never down.
#[tokio::test(start_paused = true)]
async fn a_store_may_declare_a_coarser_resolution() {
    let micro = Duration::from_micros(1);
    let up = || suite(Flaw::RoundsWaitsUp).timelines(timelines());
    up().resolution(micro).run().await.unwrap();
    let finer = up().resolution(Duration::from_nanos(500)).run().await;
    for broken in [up().run().await.unwrap_err(), finer.unwrap_err()] {
        assert!(laws(&broken).contains(&Law::Wait), "{broken}");
    }
    let down = suite(Flaw::RoundsWaitsDown)
        .timelines(timelines())
        .resolution(micro);
    let broken = down.run().await.unwrap_err();
    assert!(laws(&broken).contains(&Law::Wait), "{broken}");
}

/// A store may deviate from its rules by the tolerance that it declares.
#[tokio::test(start_paused = true)]
async fn a_store_may_declare_a_tolerance() {
    let more = || brief_suite(Flaw::AdmitsOneMore);
    let report = more().tolerance(0, 1).run().await.unwrap();
    let counted = [
        Law::Limit,
        Law::Never,
        Law::Keys,
        Law::Reset,
        Law::Reserve,
        Law::Race,
        Law::Cancel,
        Law::Fault,
        Law::Nodes,
    ];
    assert_eq!(report.kept(), counted);
    let broken = more().tolerance(1, 0).run().await.unwrap_err();
    assert!(laws(&broken).contains(&Law::Limit), "{broken}");

    let less = || brief_suite(Flaw::AdmitsOneLess);
    assert_eq!(less().tolerance(1, 0).run().await.unwrap().kept(), counted);
    let broken = less().tolerance(0, 1).run().await.unwrap_err();
    assert!(laws(&broken).contains(&Law::Limit), "{broken}");

    // Other flaws are still detected.
    let others = [
        (Flaw::OversizeIsToldAWait, Law::Never),
        (Flaw::MixesKinds, Law::Keys),
        (Flaw::ResetDoesNothing, Law::Reset),
        (Flaw::ChargesDroppedTwice, Law::Cancel),
        (Flaw::ChargesFaultsTwice, Law::Fault),
    ];
    for (flaw, law) in others {
        let broken = brief_suite(flaw).tolerance(1, 1).run().await.unwrap_err();
        assert!(laws(&broken).contains(&law), "{flaw:?}: {broken}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_law_that_cannot_be_checked_is_not_reported_as_kept() {
    let store = || Local::<TokenBucket>::new();
    let hourly = [TokenBucket::per_hour(5), TokenBucket::per_hour(7)];
    let unchecked = async |suite: Suite<TokenBucket, _>| {
        let broken = suite.run().await.unwrap_err();
        let text = broken.to_string();
        assert!(text.contains("not checked: "), "{text}");
        assert!(text.contains("leave it out by `.without(Law::"), "{text}");
        laws(&broken)
    };
    let suite = || Suite::with_rules(store(), hourly);
    assert_eq!(unchecked(suite()).await, [Law::Wait, Law::Race]);
    let spawning = suite().spawn(tokio::spawn);
    assert_eq!(unchecked(spawning).await, [Law::Wait]);
    // The suite does not wait for an hour.
    let sleeping = || suite().spawn(tokio::spawn).sleep(tokio::time::sleep);
    assert_eq!(unchecked(sleeping()).await, [Law::Wait]);
    let report = sleeping().without(Law::Wait).run().await.unwrap();
    assert_eq!(report.left_out(), [Law::Wait, Law::Fault]);

    let one = Suite::with_rules(store(), [hourly[0]]).without(Law::Wait);
    assert_eq!(unchecked(one.spawn(tokio::spawn)).await, [Law::Change]);
    let fast = [TokenBucket::per_second(40), TokenBucket::per_second(50)];
    let fast = Suite::with_rules(store(), fast)
        .spawn(tokio::spawn)
        .without(Law::Wait)
        .fault(|_| {});
    let counted = [Law::Settle, Law::Race, Law::Cancel, Law::Fault];
    assert_eq!(unchecked(fast).await, counted);
    let none = Suite::with_rules(store(), []);
    assert_eq!(unchecked(none).await.len(), Law::ALL.len() - 1);
}

/// Each node has a limit of its own.
#[tokio::test(start_paused = true)]
async fn nodes_that_share_nothing_fail_the_suite() {
    let clock = ManualClock::default();
    let [one, other] = [(); 2].map(|()| Flawed::new(&clock, Flaw::None));
    let suite = Suite::new(Alternating::new(one, other)).clock(clock);
    let broken = suite.spawn(tokio::spawn).run().await.unwrap_err();
    let most = [Law::Limit, Law::Refusal, Law::Never, Law::Look, Law::Race];
    assert!(
        most.iter().all(|law| laws(&broken).contains(law)),
        "{broken}"
    );
}

/// Calls for a key through one connection are combined, so they never race.
#[tokio::test(start_paused = true)]
async fn two_connections_show_that_a_store_never_compares() {
    let race = async |never_compares, connections| {
        let clock = ManualClock::default();
        let ways = Ways {
            gives_way: true,
            never_compares,
            ..Ways::default()
        };
        let memory = Memory::new(clock, ways);
        let first = driver::<AnyRule>(memory.node(1));
        let second = if connections == 1 {
            first.clone()
        } else {
            driver(memory.node(2))
        };
        let store = Alternating::new(first, second);
        let suite = Suite::with_rules(store, RULES.map(rule)).settling_back();
        suite.spawn(tokio::spawn).only(Law::Race).run().await
    };
    race(true, 1).await.unwrap();
    let broken = race(true, 2).await.unwrap_err();
    assert_eq!(laws(&broken), [Law::Race]);
    race(false, 2).await.unwrap();
}

/// The suite reports it and does not hang.
#[tokio::test(start_paused = true)]
async fn a_store_that_never_answers_fails_the_suite() {
    let clock = ManualClock::default();
    let store: Local<AnyRule, _> = LocalBuilder::new().clock(clock.clone()).build();
    let faulty = Faulty::new(store);
    faulty.faults().always(Fault::Silent);
    let suite = Suite::new(faulty).clock(clock).sleep(tokio::time::sleep);
    let broken = suite.only(Law::Limit).run().await.unwrap_err();
    let text = broken.to_string();
    assert!(
        text.contains("look at alice is not answered within 30s"),
        "{text}"
    );
}
