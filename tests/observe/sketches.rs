//! Estimates in bounded memory, against exact counts: distinct keys, and the most frequent ones.
//!
//! Bounds on random errors are five standard errors wide, so a run fails by chance less than once
//! in ten thousand.

use std::{
    collections::{HashMap, HashSet},
    net::{Ipv4Addr, Ipv6Addr},
    num::NonZeroU64,
    sync::{
        Barrier,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use num_rational::Ratio;
use proptest::{collection::vec, prelude::*};
use support::{
    Random,
    counting::{allocations, bytes_kept},
};
use tollgate::{
    Cost, Decision, Policy, Quota, Timestamp, TokenBucket, Verdict,
    key::{Key, MissingKey},
    observe::{DistinctKeys, Event, Observer, TopKey, TopKeys, TopRefused},
    store::{Local, driver::Ask},
};

/// The number of hashes that `DistinctKeys` keeps.
const KEPT: u64 = 1024;

/// Returns the standard error of an estimate, as a part of the number: the variance is at most 1 /
/// (k − 2).
fn standard_error() -> f64 {
    1.0 / ((KEPT - 2) as f64).sqrt()
}

/// Asserts that an estimate is within five standard errors.
#[track_caller]
fn assert_near(estimate: u64, number: u64) {
    let error = estimate.abs_diff(number) as f64;
    let most = 5.0 * standard_error() * number as f64;
    assert!(error <= most, "{estimate} instead of {number}");
}

fn estimate_of(keys: impl IntoIterator<Item: Into<Key>>) -> u64 {
    let distinct = DistinctKeys::new();
    for key in keys {
        distinct.add(&key.into());
    }
    distinct.estimate()
}

mod distinct {
    use super::*;

    #[test]
    fn few_keys_are_counted_exactly() {
        let mut random = Random::new(1);
        for number in [0, 1, 2, 10, 100, 1000, KEPT - 1] {
            let mut keys: Vec<_> = (0..number).chain(0..number).chain(0..number / 2).collect();
            random.shuffle(&mut keys);
            assert_eq!(estimate_of(keys), number);
        }
        assert_eq!(DistinctKeys::default().estimate(), 0);
    }

    #[test]
    fn each_step_of_few_keys_is_exact() {
        let (distinct, mut exact) = (DistinctKeys::new(), HashSet::new());
        let mut random = Random::new(2);
        for _ in 0..5_000 {
            let key = random.below(KEPT - 1);
            distinct.add(&key.into());
            exact.insert(key);
            assert_eq!(distinct.estimate(), exact.len() as u64);
        }
    }

    #[test]
    fn many_keys_are_estimated() {
        for number in [
            KEPT,
            KEPT + 1,
            1_500,
            2_000,
            5_000,
            10_000,
            100_000,
            1_000_000,
        ] {
            assert_near(estimate_of(0..number), number);
        }
    }

    /// Keys of every kind, in the patterns that clients have: neighbouring addresses, common
    /// prefixes, long texts.
    #[test]
    fn keys_of_every_kind_are_estimated() {
        let number = 20_000_u32;
        let v4 = (0..number).map(|n| Ipv4Addr::from(0x0a00_0000 + n));
        assert_near(estimate_of(v4), number.into());
        let v6 = (0..number).map(|n| Ipv6Addr::from(0x2001_0db8_u128 << 96 | u128::from(n) << 64));
        assert_near(estimate_of(v6), number.into());
        let short = (0..number).map(|n| format!("user-{n}"));
        assert_near(estimate_of(short), number.into());
        let long = (0..number).map(|n| format!("{}{n}", "-".repeat(60)));
        assert_near(estimate_of(long), number.into());
        let joined = (0..number).map(|n| Key::join(["tenant", &n.to_string()]));
        assert_near(estimate_of(joined), number.into());
    }

    /// The mean of many estimates has no bias, and their spread is as documented.
    #[test]
    fn the_standard_error_is_as_documented() {
        let sketches = support::cases(100).max(50);
        let number = 10_000;
        let estimates: Vec<_> = (0..sketches).map(|_| estimate_of(0..number)).collect();
        let errors: Vec<_> = estimates
            .iter()
            .map(|estimate| *estimate as f64 / number as f64 - 1.0)
            .collect();
        let (count, error) = (sketches as f64, standard_error());
        let mean = errors.iter().sum::<f64>() / count;
        assert!(mean.abs() <= 5.0 * error / count.sqrt(), "a bias of {mean}");
        let spread = (errors.iter().map(|error| error * error).sum::<f64>() / count).sqrt();
        let most = 1.0 + 5.0 / (2.0 * count).sqrt();
        assert!(spread <= error * most, "a standard error of {spread}");
        // Different seeds give different estimates. (Less than half of the error comes by chance
        // once in ten million runs.)
        let different: HashSet<_> = estimates.iter().collect();
        assert!(different.len() > estimates.len() / 2, "{estimates:?}");
        assert!(spread >= error / 2.0, "a standard error of {spread}");
    }

    #[test]
    fn duplicates_change_nothing() {
        let distinct = DistinctKeys::new();
        let add_all = || (0..50_000_u64).for_each(|key| distinct.add(&key.into()));
        add_all();
        let estimate = distinct.estimate();
        add_all();
        // A key that may be printed is the same key.
        (0..1_000_u64).for_each(|key| distinct.add(&Key::from(key).labelled()));
        assert_eq!(distinct.estimate(), estimate);
    }

    #[test]
    fn the_estimate_never_falls() {
        let (distinct, mut last) = (DistinctKeys::new(), 0);
        for key in 0..20_000_u64 {
            distinct.add(&key.into());
            let estimate = distinct.estimate();
            assert!(estimate >= last, "{estimate} after {last}");
            last = estimate;
        }
    }

    /// No key is lost: adding all of them again, on one thread, inserts none.
    #[test]
    fn threads_add_together() {
        const THREADS: u64 = 4;
        for each in [200, 2_000, 30_000] {
            let (distinct, start) = (&DistinctKeys::new(), &Barrier::new(THREADS as usize + 1));
            let done = &AtomicBool::new(false);
            thread::scope(|scope| {
                let threads = (0..THREADS).map(|thread| {
                    scope.spawn(move || {
                        start.wait();
                        // Half of the keys of each thread are also the next one's.
                        (0..each).for_each(|key| distinct.add(&(thread * each / 2 + key).into()));
                    })
                });
                let threads: Vec<_> = threads.collect();
                scope.spawn(move || {
                    let mut last = 0;
                    start.wait();
                    while !done.load(Ordering::Relaxed) {
                        let estimate = distinct.estimate();
                        assert!(estimate >= last, "{estimate} after {last}");
                        last = estimate;
                    }
                });
                let ended: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
                done.store(true, Ordering::Relaxed);
                assert!(ended.iter().all(Result::is_ok));
            });
            let (estimate, number) = (distinct.estimate(), (THREADS + 1) * each / 2);
            (0..number).for_each(|key| distinct.add(&key.into()));
            assert_eq!(distinct.estimate(), estimate);
            if number < KEPT {
                assert_eq!(estimate, number);
            } else {
                assert_near(estimate, number);
            }
        }
    }

    #[test]
    fn clearing_forgets_all() {
        let distinct = DistinctKeys::new();
        for number in [5_000, 500] {
            (0..number).for_each(|key: u64| distinct.add(&key.into()));
            distinct.clear();
            assert_eq!(distinct.estimate(), 0);
        }
        (0..700_u64).for_each(|key| distinct.add(&key.into()));
        assert_eq!(distinct.estimate(), 700);
    }

    #[test]
    fn memory_is_bounded() {
        let (bytes, distinct) = bytes_kept(DistinctKeys::new);
        assert!(bytes <= 8 * 1024 + 256, "{bytes} bytes");
        let (count, ()) = allocations(|| {
            (0..100_000_u64).for_each(|key| distinct.add(&key.into()));
        });
        assert_eq!(count, 0);
    }
}

mod top {
    use super::*;

    /// Records a stream, and checks all guarantees against exact counts. Returns the list, greatest
    /// first.
    #[track_caller]
    fn checked(capacity: usize, stream: &[(u64, u64)]) -> Vec<TopKey> {
        let (keys, mut exact) = (TopKeys::new(capacity), HashMap::new());
        for (key, count) in stream {
            keys.record_many(&(*key).into(), *count);
            *exact.entry(Key::from(*key)).or_insert(0) += count;
        }
        exact.retain(|_, count| *count > 0);
        check(&keys, &exact)
    }

    #[track_caller]
    fn check(keys: &TopKeys, exact: &HashMap<Key, u64>) -> Vec<TopKey> {
        let (capacity, top) = (keys.capacity(), keys.top(usize::MAX));
        let total: u64 = exact.values().sum();
        assert_eq!(keys.total(), total);
        assert_eq!(top.len(), capacity.min(exact.len()));
        for kept in &top {
            let (count, error) = (kept.count(), kept.error());
            let truth = *exact.get(kept.key()).expect("a key that was recorded");
            assert!(
                count - error <= truth && truth <= count,
                "{kept:?}: {truth}"
            );
            assert!(error <= total / capacity as u64, "{kept:?}: of {total}");
            assert!(exact.len() > capacity || error == 0, "{kept:?}");
        }
        let kept: HashSet<_> = top.iter().map(|top| *top.key()).collect();
        assert_eq!(kept.len(), top.len(), "a key is listed twice");
        for (key, truth) in exact {
            let is_frequent = u128::from(*truth) * capacity as u128 > u128::from(total);
            assert!(
                kept.contains(key) || !is_frequent,
                "a key with {truth} of {total}"
            );
        }
        // Each unit is in one counter.
        let sum: u64 = top.iter().map(TopKey::count).sum();
        assert_eq!(sum, if capacity == 0 { 0 } else { total });
        let is_sorted = |pair: &[TopKey]| {
            let [a, b] = pair else { return false };
            a.count() > b.count() || a.count() == b.count() && a.error() <= b.error()
        };
        assert!(top.windows(2).all(is_sorted), "{top:?}");
        top
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: support::cases(150) as u32, ..ProptestConfig::default() })]

        #[test]
        fn the_guarantees_hold(
            capacity in 0..40_usize,
            stream in vec((0..60_u64, 0..5_u64), 0..600),
        ) {
            checked(capacity, &stream);
        }

        /// A few keys come often, and many once.
        #[test]
        fn the_guarantees_hold_for_skewed_streams(
            capacity in 1..30_usize,
            stream in vec(prop_oneof![0..4_u64, 0..30_u64, any::<u64>()], 0..1_500),
        ) {
            let stream: Vec<_> = stream.into_iter().map(|key| (key, 1)).collect();
            checked(capacity, &stream);
        }

        #[test]
        fn the_guarantees_hold_for_large_counts(
            capacity in 1..10_usize,
            stream in vec((0..20_u64, 0..=u64::MAX / 100), 0..100),
        ) {
            checked(capacity, &stream);
        }
    }

    /// Streams that are bad for the order of the counters: ascending, descending, and in rounds
    /// that always miss.
    #[test]
    fn the_guarantees_hold_for_hostile_streams() {
        for capacity in [1, 2, 3, 64, 100] {
            let rounds = |keys: u64| (0..5_000).map(move |n| (n % keys, 1));
            for keys in [1, 64, 65, 101, 5_000] {
                checked(capacity, &rounds(keys).collect::<Vec<_>>());
            }
            let ascending: Vec<_> = (0..500).map(|n| (n, n)).collect();
            checked(capacity, &ascending);
            let descending: Vec<_> = ascending.into_iter().rev().collect();
            checked(capacity, &descending);
            checked(capacity, &[descending.clone(), descending].concat());
        }
    }

    /// A hundred thousand addresses that come once do not hide clients with one request in five
    /// hundred.
    #[test]
    fn a_flood_hides_no_frequent_key() {
        const FREQUENT: u64 = 10;
        let mut random = Random::new(3);
        let stream: Vec<_> = (0..100_000)
            .map(|n| match random.below(500) {
                frequent if frequent < FREQUENT => (frequent, 1),
                _ => (FREQUENT + n, 1),
            })
            .collect();
        let top = checked(1_000, &stream);
        let first: HashSet<_> = top[..FREQUENT as usize]
            .iter()
            .map(|top| *top.key())
            .collect();
        assert_eq!(first, (0..FREQUENT).map(Key::from).collect());
    }

    #[test]
    fn the_first_n_are_returned() {
        let keys = TopKeys::new(10);
        for key in 0..20_u64 {
            keys.record_many(&key.into(), key + 1);
        }
        let all = keys.top(10);
        for n in 0..12 {
            assert_eq!(keys.top(n), all[..n.min(10)]);
        }
    }

    #[test]
    fn threads_record_together() {
        const THREADS: u64 = 4;
        for capacity in [100, 7] {
            let keys = &TopKeys::new(capacity);
            thread::scope(|scope| {
                for thread in 0..THREADS {
                    scope.spawn(move || {
                        let mut random = Random::new(thread);
                        for _ in 0..10_000 {
                            keys.record(&random.below(50).into());
                        }
                    });
                }
                scope.spawn(move || {
                    for _ in 0..100 {
                        let top = keys.top(5);
                        assert!(
                            top.iter()
                                .all(|top| top.error() <= top.count() && top.count() <= 40_000)
                        );
                    }
                });
            });
            let mut exact = HashMap::new();
            for thread in 0..THREADS {
                let mut random = Random::new(thread);
                for _ in 0..10_000 {
                    *exact.entry(Key::from(random.below(50))).or_insert(0) += 1;
                }
            }
            check(keys, &exact);
        }
    }

    #[test]
    fn counts_saturate() {
        let keys = TopKeys::new(1);
        keys.record_many(&1.into(), u64::MAX);
        keys.record(&1.into());
        keys.record(&2.into());
        let top = keys.top(1);
        assert_eq!((top[0].count(), top[0].error()), (u64::MAX, u64::MAX));
        assert_eq!(keys.total(), u64::MAX);
    }

    #[test]
    fn zero_is_not_recorded() {
        let keys = TopKeys::new(1);
        keys.record(&1.into());
        keys.record_many(&2.into(), 0);
        assert_eq!(keys.top(1)[0].key(), &1.into());
        assert_eq!((keys.total(), keys.top(2).len()), (1, 1));
    }

    #[test]
    fn clearing_forgets_all() {
        let keys = TopKeys::new(3);
        for _ in 0..2 {
            for key in 0..10_u64 {
                keys.record(&key.into());
            }
            keys.clear();
            assert_eq!((keys.total(), keys.top(9).len()), (0, 0));
        }
        keys.record(&9.into());
        assert_eq!((keys.top(9)[0].count(), keys.top(9)[0].error()), (1, 0));
    }

    #[test]
    fn a_key_is_shown_by_its_digest_unless_labelled() {
        let secret = Key::from("alice@example.com");
        let keys = TopKeys::new(1);
        keys.record(&secret);
        let label = keys.top(1)[0].label().to_owned();
        assert_eq!(label, format!("{:016x}", secret.digest()));
        let keys = keys.labelled_by(|key| format!("client {}", key.digest() % 10));
        let shown = format!("{keys:?} {:?}", keys.top(1));
        assert!(
            shown.contains(&format!("client {}", secret.digest() % 10)),
            "{shown}"
        );
        assert!(!shown.contains("alice"), "{shown}");
    }

    #[test]
    fn memory_is_bounded() {
        for capacity in [1_000, 1_025, TopKeys::MAX_CAPACITY] {
            let (bytes, keys) = bytes_kept(|| TopKeys::new(capacity));
            assert!(bytes <= 100 * capacity as i64 + 256, "{bytes} bytes");
            let (count, ()) = allocations(|| {
                (0..100_000_u64).for_each(|key| keys.record(&key.into()));
            });
            assert_eq!(count, 0);
        }
        assert_eq!(TopKeys::new(usize::MAX).capacity(), TopKeys::MAX_CAPACITY);
    }
}

mod refused {
    use super::*;

    fn decision(verdict: Verdict, limit: u64, remaining: u64) -> Decision {
        Decision::new(verdict, Timestamp::default(), 1)
            .with_limit(NonZeroU64::new(limit).unwrap(), Quota::per_second(1))
            .with_remaining(remaining)
    }

    /// Reports a decision as a layer does.
    fn report(top: &TopRefused, key: Key, decision: &Decision) {
        let policy = Policy::new("api");
        let event = Event::new(&policy, &key, decision);
        match decision.verdict() {
            Verdict::Allow => top.admitted(&event),
            Verdict::Delay(wait) => top.delayed(&event, wait),
            Verdict::Refuse => top.refused(&event),
            _ => top.undecided(&event),
        }
    }

    fn totals(top: &TopRefused) -> [u64; 2] {
        [
            top.most_refused().total(),
            top.most_nearly_refused().total(),
        ]
    }

    #[test]
    fn admissions_are_near_below_the_share_of_the_limit() {
        for percent in [
            None,
            Some(0),
            Some(1),
            Some(33),
            Some(50),
            Some(100),
            Some(255),
        ] {
            let top = TopRefused::new(1);
            let top = match percent {
                Some(percent) => top.nearly_below(percent),
                None => top,
            };
            let percent = u128::from(percent.unwrap_or(10));
            let mut near = 0;
            let large = [u64::MAX, u64::MAX - 1, u64::MAX / 10, u64::MAX / 10 + 1];
            for limit in (1..=60).chain([100, 1_000, u64::MAX]) {
                let few = (0..=limit.min(60)).chain([99, 100, 101]).chain(large);
                for remaining in few.filter(|remaining| *remaining <= limit) {
                    let verdict = match remaining % 2 {
                        0 => Verdict::Allow,
                        _ => Verdict::Delay(Duration::from_secs(1)),
                    };
                    report(&top, Key::GLOBAL, &decision(verdict, limit, remaining));
                    let left = Ratio::new(u128::from(remaining), u128::from(limit));
                    near += u64::from(left < Ratio::new(percent, 100));
                    assert_eq!(
                        totals(&top),
                        [0, near],
                        "{remaining} of {limit} under {percent} %"
                    );
                }
            }
        }
    }

    #[test]
    fn other_events_are_not_recorded() {
        let top = TopRefused::new(10);
        for admitted in [true, false] {
            let undecided = Decision::undecided(admitted, Timestamp::default(), None);
            report(&top, Key::GLOBAL, &undecided);
        }
        let (policy, key) = (Policy::new("api"), Key::GLOBAL);
        let refused = decision(Verdict::Refuse, 10, 0);
        top.dry_run(&Event::new(&policy, &key, &refused));
        top.exempt();
        top.missing_key(&MissingKey::new("no key"));
        top.settled(&policy, &key, 2, 1);
        // An admission without a limit cannot be near it.
        let unlimited = Decision::new(Verdict::Allow, Timestamp::default(), 1);
        report(&top, key, &unlimited);
        assert_eq!(totals(&top), [0, 0]);
    }

    #[test]
    fn clients_of_a_store_are_found() {
        let (top, store) = (TopRefused::new(100), Local::new());
        let (policy, rule) = (Policy::new("api"), TokenBucket::per_day(1).burst(20));
        let mut random = Random::new(4);
        let (mut refused, mut nearly) = (HashMap::new(), HashMap::new());
        let mut left = HashMap::new();
        for _ in 0..5_000 {
            // Low numbers come more often.
            let client = random.below(50).min(random.below(50));
            let decision = store.decide(&Ask::new(&policy, &rule, client.into(), Cost::ONE));
            report(&top, client.into(), &decision);
            let left = left.entry(client).or_insert(20_u64);
            match left.checked_sub(1) {
                None => *refused.entry(Key::from(client)).or_insert(0_u64) += 1,
                Some(fewer) => {
                    *left = fewer;
                    // Less than a tenth of 20.
                    if fewer < 2 {
                        *nearly.entry(Key::from(client)).or_insert(0_u64) += 1;
                    }
                }
            }
        }
        for (list, exact) in [
            (top.most_refused(), refused),
            (top.most_nearly_refused(), nearly),
        ] {
            assert!(exact.len() > 10);
            let found = list.top(100);
            let found: HashMap<_, _> = found.iter().map(|top| (*top.key(), top.count())).collect();
            assert_eq!(found, exact);
        }
    }

    #[test]
    fn both_lists_have_the_labels() {
        let top = TopRefused::new(1).labelled_by(|_| "a client".to_owned());
        report(&top, Key::GLOBAL, &decision(Verdict::Refuse, 10, 0));
        report(&top, Key::GLOBAL, &decision(Verdict::Allow, 10, 0));
        for list in [top.most_refused(), top.most_nearly_refused()] {
            assert_eq!(list.top(1)[0].label(), "a client");
        }
    }
}
