//! Refusals as events, a few per second.

use std::time::Duration;

use http::StatusCode;
use tollgate::{
    Decision, Policy, Verdict,
    key::Key,
    observe::{Event, Observer, RefusalLog},
    store::FailureMode,
    testing::Fault,
    time::{Clock, ManualClock},
};
use tracing::Level;

use crate::{
    requests::{PLACES, Place, send, service, store},
    subscriber::{Fields, Trace},
};

/// Returns the fields of an event from text: `name=value` with spaces between.
fn fields(text: &str) -> Fields {
    let pairs = text.split(' ').filter_map(|pair| pair.split_once('='));
    pairs
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// Returns the fields without the message.
fn without_message(mut event: Fields) -> Fields {
    assert!(
        event
            .remove("message")
            .is_some_and(|text| text.contains("rate limit"))
    );
    event
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_an_event_with_its_numbers() {
    let digest = format!("{:016x}", Key::from("bob").digest());
    for place in PLACES {
        let (trace, _guard) = Trace::start(Level::INFO);
        let store = store(place, FailureMode::Closed).0;
        let rules = ["token-bucket 9/1h", "token-bucket 1/1h"];
        let log = RefusalLog::new().per_second(u32::MAX);
        let service = service(&rules, store, log);
        assert_eq!(send(&service, "alice", "bob").await, StatusCode::OK);
        assert!(trace.take().events.is_empty());

        let refused = send(&service, "alice", "bob").await;
        assert_eq!(refused, StatusCode::TOO_MANY_REQUESTS);
        let mut events = trace.take().events;
        assert_eq!(events.len(), 1, "{events:?}");
        let event = without_message(events.remove(0));
        let expected = format!(
            "level=INFO policy=two verdict=refused key={digest} retry_after=3600.0 remaining=0 skipped=0"
        );
        assert_eq!(event, fields(&expected));
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_store_cannot_decide_is_an_event_of_its_own_level() {
    for (mode, verdict) in [
        (FailureMode::Open, "undecided_admitted"),
        (FailureMode::Closed, "undecided_refused"),
    ] {
        let (trace, _guard) = Trace::start(Level::INFO);
        let (store, faults) = store(Place::Remote, mode);
        faults.script([Some(Fault::Unavailable)]);
        let log = RefusalLog::new().key(|key| format!("{key:?}"));
        send(&service(&["token-bucket 9/1h"], store, log), "alice", "-").await;
        let mut events = trace.take().events;
        // The store's failure has an event, too.
        events.retain(|event| event["level"] == "WARN");
        assert_eq!(events.len(), 1, "{events:?}");
        let expected = format!("level=WARN policy=one verdict={verdict} key=Key(text) skipped=0");
        assert_eq!(without_message(events.remove(0)), fields(&expected));
    }
}

/// Reports refusals, undecided requests and refusals on trial to a log, once each.
fn report(log: &impl Observer, clock: &ManualClock) {
    let (policy, key) = (Policy::new("api"), Key::from("alice"));
    let decision = |verdict| Decision::new(verdict, clock.now(), 1);
    let refused = decision(Verdict::Refuse).with_retry_after(Some(Duration::from_millis(1500)));
    let undecided = decision(Verdict::Undecided { admitted: false });
    log.refused(&Event::new(&policy, &key, &refused));
    log.undecided(&Event::new(&policy, &key, &undecided));
    log.dry_run(&Event::new(&policy, &key, &refused));
    // These are no refusals.
    log.dry_run(&Event::new(&policy, &key, &decision(Verdict::Allow)));
    log.dry_run(&Event::new(&policy, &key, &undecided));
    log.admitted(&Event::new(&policy, &key, &decision(Verdict::Allow)));
    log.exempt();
}

#[test]
fn each_level_has_a_number_of_events_per_second_and_the_next_event_counts_the_skipped() {
    let (trace, _guard) = Trace::start(Level::TRACE);
    let clock = ManualClock::default();
    let log = RefusalLog::new().per_second(3).clock(clock.clone());
    // All services of a layer share the budget.
    let other = log.clone();
    for _ in 0..50 {
        report(&log, &clock);
        report(&other, &clock);
    }
    let of = |level: &str, verdict: &str, skipped: &str| {
        fields(&format!(
            "level={level} policy=api verdict={verdict} skipped={skipped}"
        ))
    };
    let events = |trace: &Trace| -> Vec<_> {
        let events = trace.take().events.into_iter().map(without_message);
        events
            .map(|mut event| {
                assert_eq!(event.remove("key").unwrap().len(), 16);
                if event["level"] == "INFO" {
                    assert_eq!(event.remove("retry_after").as_deref(), Some("1.5"));
                }
                event
            })
            .collect()
    };
    let mut expected = vec![
        of("INFO", "refused", "0"),
        of("WARN", "undecided_refused", "0"),
        of("INFO", "dry_run_refused", "0"),
        of("INFO", "refused", "0"),
        of("WARN", "undecided_refused", "0"),
        of("WARN", "undecided_refused", "0"),
    ];
    assert_eq!(events(&trace), expected);

    clock.advance(Duration::from_secs(1));
    report(&log, &clock);
    // 200 refusals and 100 undecided requests, less three of each.
    expected.truncate(3);
    expected[0].insert("skipped".to_owned(), "197".to_owned());
    expected[1].insert("skipped".to_owned(), "97".to_owned());
    assert_eq!(events(&trace), expected);
}

/// An event that nobody reads takes no sample and computes no text.
#[test]
fn what_is_not_read_is_not_sampled() {
    let clock = ManualClock::default();
    let log = RefusalLog::new().per_second(1).clock(clock.clone());
    let log = log.key(|_| panic!("the text of a key that nobody reads"));
    let (trace, guard) = Trace::start(Level::ERROR);
    for _ in 0..5 {
        report(&log, &clock);
    }
    assert!(trace.take().events.is_empty());
    drop(guard);

    let (trace, _guard) = Trace::start(Level::INFO);
    report(&log.key(|_| String::new()), &clock);
    let events = trace.take().events;
    assert_eq!(events.len(), 2);
    assert!(
        events.iter().all(|event| event["skipped"] == "0"),
        "{events:?}"
    );
}

#[test]
fn a_log_of_no_events_is_silent() {
    let (trace, _guard) = Trace::start(Level::TRACE);
    let clock = ManualClock::default();
    report(
        &RefusalLog::new().per_second(0).clock(clock.clone()),
        &clock,
    );
    assert!(trace.take().events.is_empty());
}
