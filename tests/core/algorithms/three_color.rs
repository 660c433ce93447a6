//! The marker obeys the laws, and equals the pseudo code of RFC 2698 (§3) with buckets that fill
//! continuously.

use std::time::Duration;

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{ToPrimitive, Zero};
use proptest::prelude::*;
use support::rational::whole;
use tollgate::{
    AnyRule, Cascade, Charge, Decision, Quota, ThreeColor, Timestamp, Verdict,
    algorithm::{Algorithm, Codec, Step},
};

use crate::algorithms::{
    answer::{Answer, rounded},
    cascade::common::{
        Bucket, DAY, Oracle, SECOND, at, bears, bucket, equals, put_number, span, units,
    },
    laws::{Keeps, Op, beginnings, hold, ops},
};

type ThreeColorState = <ThreeColor as Algorithm>::State;

/// The numbers of a marker. `given` is the color of an incoming request, for a color-aware marker.
#[derive(Clone, Copy, Debug)]
struct Setting {
    committed: Bucket,
    peak: Bucket,
    given: Option<u8>,
}

impl Setting {
    fn rule(&self) -> ThreeColor {
        let rule = ThreeColor::new(self.committed.quota(), self.peak.quota())
            .burst(self.committed.burst)
            .peak_burst(self.peak.burst);
        self.given.map_or(rule, |class| rule.aware().given(class))
    }
}

/// The fillings of the buckets C and P in nanoseconds, at the instant of the last write.
#[derive(Clone, Default, Debug)]
struct Fillings(Option<(BigRational, BigRational, u64)>);

const GREEN: u8 = 0;
const YELLOW: u8 = 1;
const RED: u8 = 2;

impl Fillings {
    /// Returns Tc(t), Tp(t), and t, which is at or after the last write.
    fn tokens(&self, rule: &Setting, now: u64) -> (BigRational, BigRational, u64) {
        let (bucket_c, bucket_p) = (&rule.committed, &rule.peak);
        let Some((c, p, written)) = &self.0 else {
            return (whole(bucket_c.burst), whole(bucket_p.burst), now);
        };
        let at = now.max(*written);
        let filled = |bucket: &Bucket, filling: &BigRational| {
            let tokens = (filling + whole(at - written)) / bucket.interval();
            tokens.min(whole(bucket.burst))
        };
        (filled(bucket_c, c), filled(bucket_p, p), at)
    }

    /// RFC 2698 §3, color-blind and color-aware: returns the color of B units, from the color that
    /// they had.
    fn mark(rule: &Setting, tc: &mut BigRational, tp: &mut BigRational, b: u64) -> u8 {
        let had = rule.given.unwrap_or(GREEN);
        if had >= RED || *tp < whole(b) {
            RED
        } else if had == YELLOW || *tc < whole(b) {
            *tp -= whole(b);
            YELLOW
        } else {
            *tp -= whole(b);
            *tc -= whole(b);
            GREEN
        }
    }

    fn write(&mut self, rule: &Setting, tc: BigRational, tp: BigRational, at: u64) {
        let filling = |bucket: &Bucket, tokens: BigRational| {
            (tokens * bucket.interval()).max(bucket.longest_debt())
        };
        self.0 = Some((filling(&rule.committed, tc), filling(&rule.peak, tp), at));
    }

    fn answer(&self, rule: &Setting, now: u64, color: u8, asked: u64) -> Answer {
        let (tc, tp, at) = self.tokens(rule, now);
        let until = |bucket: &Bucket, tokens: &BigRational, wanted: u64| {
            let lacking = whole(wanted) - tokens;
            (bucket.burst >= wanted && lacking > BigRational::zero())
                .then(|| whole(at - now) + lacking * bucket.interval())
        };
        let barred = rule.given.is_some_and(|given| given >= RED);
        let held = tp.floor().max(BigRational::zero()).to_integer();
        let remaining = if barred { 0 } else { held.to_u64().unwrap() };
        let waits = |wait: Option<BigRational>| wait.map_or(BigInt::zero(), rounded);
        let retry = until(&rule.peak, &tp, asked).filter(|_| !barred);
        let more = until(&rule.peak, &tp, remaining + 1).filter(|_| !barred);
        let resets = [
            until(&rule.committed, &tc, rule.committed.burst),
            until(&rule.peak, &tp, rule.peak.burst),
        ];
        Answer {
            admitted: color != RED,
            class: color,
            limit: rule.peak.burst,
            remaining,
            retry: match color {
                RED => retry.map(rounded),
                _ => Some(BigInt::zero()),
            },
            reset: resets.map(waits).into_iter().max().unwrap(),
            more: waits(more),
            ..Answer::default()
        }
    }
}

impl Oracle<Setting> for Fillings {
    fn step(&mut self, rule: &Setting, now: u64, cost: u64) -> Answer {
        let (mut tc, mut tp, at) = self.tokens(rule, now);
        let color = Self::mark(rule, &mut tc, &mut tp, cost);
        if color != RED {
            self.write(rule, tc, tp, at);
        }
        self.answer(rule, now, color, cost)
    }

    fn look(&self, rule: &Setting, now: u64) -> Answer {
        let (mut tc, mut tp, _) = self.tokens(rule, now);
        let color = Self::mark(rule, &mut tc, &mut tp, 1);
        self.answer(rule, now, color, 1)
    }

    /// Corrects a charge of this color in the bucket as the call left it. If the bucket has filled
    /// up or another call has written since, additional units are charged now. A refund is then
    /// limited to the part of the charge after the last write, in whole nanoseconds, if the charge
    /// began when it was made.
    fn settle(&mut self, rule: &Setting, charge: &Charge, now: u64, actual: u64) {
        let back = whole(charge.cost) - whole(actual);
        if charge.class > 1 || back.is_zero() || (self.0.is_none() && back > BigRational::zero()) {
            return;
        }
        let (tc, tp, at) = self.tokens(rule, now);
        let (c, p, written) = self.0.clone().unwrap_or_default();
        let untouched = self.0.is_some() && written == charge.at.as_nanos();
        // Returns the tokens, and the instant at which the bucket holds them.
        let corrected = |bucket: &Bucket, left: &BigRational, tokens: &BigRational| {
            let full = whole(bucket.burst);
            let ended = left + whole(at - written) >= &full * bucket.interval();
            if back < BigRational::zero() {
                return Some(if untouched && !ended {
                    (left / bucket.interval() + &back, written)
                } else {
                    (tokens + &back, at)
                });
            }
            let least = (whole(charge.cost) * bucket.interval()).floor();
            let ahead = (whole(charge.at.as_nanos()) + least - whole(written)) / bucket.interval();
            let back = if untouched {
                back.clone()
            } else {
                back.clone().min(ahead)
            };
            let changes = tokens < &full && back > BigRational::zero();
            changes.then(|| ((left / bucket.interval() + back).min(full), written))
        };
        let as_it_was = |bucket: &Bucket, left: BigRational, tokens: BigRational| {
            if self.0.is_some() {
                (left / bucket.interval(), written)
            } else {
                (tokens, at)
            }
        };
        let peak = corrected(&rule.peak, &p, &tp);
        let committed = corrected(&rule.committed, &c, &tc);
        let committed = committed.filter(|_| charge.class == u32::from(GREEN));
        if peak.is_none() && committed.is_none() {
            return;
        }
        let (tp, at_p) = peak.unwrap_or_else(|| as_it_was(&rule.peak, p, tp));
        let (tc, at_c) = committed.unwrap_or_else(|| as_it_was(&rule.committed, c, tc));
        // Both buckets are written at the later of the two instants.
        let later = at_p.max(at_c);
        let filled = |bucket: &Bucket, tokens: BigRational, at: u64| {
            // A debt saturates where it was made, and is filled from there on.
            let tokens = tokens.max(bucket.longest_debt() / bucket.interval());
            (tokens + whole(later - at) / bucket.interval()).min(whole(bucket.burst))
        };
        let (tc, tp) = (
            filled(&rule.committed, tc, at_c),
            filled(&rule.peak, tp, at_p),
        );
        self.write(rule, tc, tp, later);
    }
}

/// Generates two exact rates, the faster one being the peak.
fn setting(whole_intervals: bool) -> impl Strategy<Value = Setting> {
    let given = prop::sample::select(vec![None, None, Some(0), Some(1), Some(2), Some(255)]);
    (bucket(whole_intervals), bucket(whole_intervals), given).prop_map(|(a, b, given)| {
        // Both start full, and keep nothing free.
        let [a, b] = [a, b].map(|bucket| Bucket {
            initial: bucket.burst,
            kept_free: 0,
            ..bucket
        });
        let (committed, peak) = if a.exact_interval() < b.exact_interval() {
            (b, a)
        } else {
            (a, b)
        };
        Setting {
            committed,
            peak,
            given,
        }
    })
}

const TEXTS: [&str; 7] = [
    "three-color 100/1m peak=200/1m",
    "three-color 7/1s burst=3 peak=7/1s peak-burst=40",
    "three-color 3/1s burst=30 peak=10/1s peak-burst=5 aware",
    "three-color 1/365d peak=30000000/s aware given=yellow",
    "three-color 1/365d burst=20 peak=1/365d peak-burst=9",
    "three-color 5/10s peak=1/s peak-burst=100 aware given=red",
    "three-color 60/1m peak=60/1m peak-burst=100 aware",
];

fn rules() -> Vec<ThreeColor> {
    TEXTS.iter().map(|text| text.parse().unwrap()).collect()
}

/// One bucket is corrected where it was charged, the other one, which has filled up, half a second
/// later.
#[test]
fn a_debt_that_saturates_is_filled_up_to_the_later_correction() {
    let bucket = |amount, period| Bucket {
        amount,
        period,
        burst: 2,
        initial: 2,
        keep: 0,
        kept_free: 0,
    };
    let setting = Setting {
        committed: bucket(4, 8760 * DAY),
        peak: bucket(1, 34),
        given: None,
    };
    let ops = [Op::Spend(1), Op::Advance(SECOND / 2), Op::Settle(40)];
    let begin = Timestamp::from_nanos(1_767_235_685_123_456_789);
    equals(&[setting], Setting::rule, Fillings::default(), begin, &ops);
}

proptest! {
    #[test]
    fn laws_hold(begin in beginnings(), first in 0..TEXTS.len(), ops in ops(60 * SECOND, 100)) {
        let mut rules = rules();
        rules.rotate_left(first);
        hold(&rules, Keeps::ALL, begin, &ops);
    }

    #[test]
    fn equals_the_oracle(setting in setting(false), begin in beginnings(), ops in ops(10 * SECOND, 20)) {
        let given = [None, Some(0), Some(1), Some(2)];
        // The color of the request changes, the rates do not.
        let mut settings = vec![setting];
        settings.extend(given.map(|given| Setting { given, ..setting }));
        equals(&settings, Setting::rule, Fillings::default(), begin, &ops);
    }

    /// Whole intervals only: a fraction of a nanosecond would be rounded when the state carries
    /// over.
    #[test]
    fn equals_the_oracle_while_rules_change(
        settings in prop::collection::vec(setting(true), 2..4), begin in beginnings(), ops in ops(10 * SECOND, 20),
    ) {
        equals(&settings, Setting::rule, Fillings::default(), begin, &ops);
    }

    /// Checks both the green units and all admitted units in every time span.
    #[test]
    fn no_time_span_exceeds_its_bound(setting in setting(false), calls in prop::collection::vec((0..2 * SECOND, 1..4_u64, 0..3_u8), 1..60)) {
        let setting = Setting { given: Some(0), ..setting };
        let (mut now, mut state, mut passed) = (0, None, Vec::new());
        for (gap, cost, given) in calls {
            now += gap;
            let decision = setting.rule().given(given).step(&mut state, at(now), units(cost)).decision();
            if decision.is_admitted() {
                prop_assert!(decision.class() >= given);
                passed.push((now, cost, decision.class()));
            }
        }
        for bound in [GREEN, YELLOW] {
            let bucket = if bound == GREEN { setting.committed } else { setting.peak };
            let passed: Vec<_> = passed.iter().filter(|(.., class)| *class <= bound).collect();
            for (n, (from, ..)) in passed.iter().enumerate() {
                let mut sum = 0;
                for (to, cost, _) in &passed[n..] {
                    sum += cost;
                    prop_assert!(whole(sum) <= whole(bucket.burst) + whole(to - from) / bucket.interval());
                }
            }
        }
    }

    #[test]
    fn text_parses_back(setting in setting(false)) {
        let rule = setting.rule();
        let text = rule.to_string();
        prop_assert_eq!(text.parse::<ThreeColor>().unwrap(), rule);
        prop_assert_eq!(text.parse::<AnyRule>().unwrap(), rule.into());
        prop_assert_eq!((rule.quota(), rule.capacity()), (setting.peak.quota(), setting.peak.burst));
        let committed = (setting.committed.quota(), setting.committed.burst);
        prop_assert_eq!((rule.committed_quota(), rule.committed_capacity()), committed);
        prop_assert_eq!(rule.is_aware(), setting.given.is_some());
    }

    #[test]
    fn no_text_panics(text in "three-color [0-9a-z/=]{0,9}( (peak|burst|peak-burst|aware|given)=[0-9a-z/]{0,5}){0,3}") {
        if let Err(error) = text.parse::<ThreeColor>() {
            let column = error.column().unwrap();
            prop_assert!((1..=text.len() + 1).contains(&column), "{}: {}", text, error);
        }
    }

    #[test]
    fn a_peak_below_the_committed_rate_is_refused(a in bucket(false), b in bucket(false)) {
        let marker = ThreeColor::try_new(a.quota(), b.quota());
        prop_assert_eq!(marker.is_ok(), b.exact_interval() <= a.exact_interval());
    }

    #[test]
    fn no_bytes_panic(bytes: Vec<u8>) {
        decoded_state_decides(&bytes);
        decoded_state_decides(&[&[0x51][..], &bytes].concat());
    }

    /// States with arbitrary numbers.
    #[test]
    fn no_state_panics(written_at: u64, committed in (span(), any::<u32>()), peak in (span(), any::<u32>())) {
        let mut bytes = vec![0x51];
        put_number(&mut bytes, written_at >> 1);
        for (whole, fraction) in [committed, peak] {
            put_number(&mut bytes, whole);
            put_number(&mut bytes, fraction.into());
        }
        prop_assert!(decoded_state_decides(&bytes));
    }

    #[test]
    fn a_marker_and_a_cascade_each_settle_their_own_buckets(
        setting in setting(true), calls in prop::collection::vec((0..SECOND, 1..9_u64, 0..12_u64), 1..20),
    ) {
        let (marker, cascade) = (setting.rule(), "cascade 5/1s > 9/1s > 2/1s burst=30".parse::<Cascade>().unwrap());
        let any: AnyRule = format!("{marker} & {cascade}").parse().unwrap();
        let pair = (marker, cascade.clone());
        let (mut in_pair, mut in_any, mut alone, mut other, mut now) = (None, None, None, None, 0);
        for (gap, cost, actual) in calls {
            now += gap;
            let decision = pair.step(&mut in_pair, at(now), units(cost)).decision();
            let same = any.step(&mut in_any, at(now), units(cost)).decision();
            prop_assert_eq!({ decision }.take_charge(), { same }.take_charge());
            let Some(charge) = { decision }.take_charge() else {
                continue;
            };
            let step = marker.step(&mut alone, at(now), units(cost)).decision();
            marker.settle(&mut alone, &{ step }.take_charge().unwrap(), at(now), actual);
            let step = cascade.step(&mut other, at(now), units(cost)).decision();
            cascade.settle(&mut other, &{ step }.take_charge().unwrap(), at(now), actual);
            pair.settle(&mut in_pair, &charge, at(now), actual);
            any.settle(&mut in_any, &charge, at(now), actual);
            prop_assert_eq!(in_pair.clone().unwrap(), (alone, other.clone()));
            prop_assert!(in_any.to_bytes().ends_with(&[alone.to_bytes(), other.to_bytes()].concat()));
        }
    }
}

/// Runs every operation on the bytes, if they are a state.
fn decoded_state_decides(bytes: &[u8]) -> bool {
    let Ok(state) = ThreeColorState::from_bytes(bytes) else {
        return false;
    };
    assert_eq!(ThreeColorState::from_bytes(&state.to_bytes()), Ok(state));
    bears(&rules(), &state);
    true
}

fn step(rule: &ThreeColor, state: &mut Option<ThreeColorState>, now: u64, cost: u64) -> Decision {
    rule.step(state, at(now), units(cost)).decision()
}

fn marker(text: &str) -> ThreeColor {
    format!("three-color {text}").parse().unwrap()
}

/// Red, yellow and green are tested in that order. Yellow spends the peak bucket only, green spends
/// both.
#[test]
fn green_spends_both_buckets_and_yellow_the_peak_alone() {
    let (rule, mut state) = (marker("1/s burst=3 peak=2/s peak-burst=10"), None);
    let green = step(&rule, &mut state, 0, 2);
    assert_eq!((green.class(), green.remaining()), (0, Some(8)));
    assert_eq!({ green }.take_charge().unwrap().class, 0);
    let yellow = step(&rule, &mut state, 0, 2);
    assert_eq!((yellow.class(), yellow.remaining()), (1, Some(6)));
    assert_eq!({ yellow }.take_charge().unwrap().class, 1);
    // The committed bucket still has its last token.
    assert_eq!(step(&rule, &mut state, 0, 1).class(), 0);
    assert_eq!(step(&rule, &mut state, 0, 5).class(), 1);
    let red = step(&rule, &mut state, 0, 1);
    assert_eq!(
        (red.verdict(), red.class(), { red }.take_charge()),
        (Verdict::Refuse, 2, None)
    );
    assert_eq!(red.retry_after(), Some(Duration::from_millis(500)));
    assert_eq!(red.more_after(), Duration::from_millis(500));
    assert_eq!(
        red.reset_after(),
        Duration::from_secs(5),
        "the peak bucket's ten"
    );
    assert_eq!(
        (red.limit(), red.quota()),
        (Some(10), Some(Quota::per_second(2)))
    );
    assert_eq!(step(&rule, &mut state, 0, 11).retry_after(), None);
}

#[test]
fn a_color_blind_marker_ignores_the_given_color() {
    let rule = marker("1/s peak=2/s");
    assert_eq!(rule.given(2), rule);
    assert_ne!(rule.aware(), rule);
    assert_eq!(rule.aware().given(0), rule.aware());
    assert_eq!(rule.aware().given(1).aware(), rule.aware().given(1));
    assert_eq!(rule.aware().given(7), rule.aware().given(2));
    for (class, text) in [
        (0, "aware"),
        (1, "aware given=yellow"),
        (2, "aware given=red"),
    ] {
        let given = rule.aware().given(class);
        assert_eq!(
            given.to_string(),
            format!("three-color 1/s peak=2/s {text}")
        );
        let any = AnyRule::from(rule.aware());
        assert_eq!(any.given(class), given.into());
    }
}

#[test]
fn a_color_aware_marker_never_improves_a_color() {
    let (rule, mut state) = (marker("5/s peak=9/s aware"), None);
    assert_eq!(step(&rule.given(1), &mut state, 0, 2).class(), 1);
    let before = state;
    let red = rule.given(2).step(&mut state, at(0), units(1));
    assert!(matches!(red, Step::Kept(_)));
    assert_eq!(state, before);
    let red = red.decision();
    assert_eq!(
        (red.class(), red.remaining(), red.retry_after()),
        (2, Some(0), None)
    );
    assert_eq!(
        red.more_after(),
        Duration::ZERO,
        "a red request never passes"
    );
    assert!(!red.reset_after().is_zero());
    let look = rule.given(2).look(state.as_ref(), at(0));
    assert_eq!((look.verdict(), look.class()), (Verdict::Refuse, 2));
    // All five are left for green requests.
    assert_eq!(step(&rule.given(0), &mut state, 0, 5).class(), 0);
}

#[test]
fn the_color_of_a_charge_decides_which_buckets_are_refunded() {
    let rule = marker("1/s burst=4 peak=1/s peak-burst=9");
    let mut state = None;
    let green = step(&rule, &mut state, 0, 4).take_charge().unwrap();
    let yellow = step(&rule, &mut state, 0, 3).take_charge().unwrap();
    assert_eq!((green.class, yellow.class), (0, 1));

    let mut without_yellow = state;
    rule.settle(&mut without_yellow, &yellow, at(0), 0);
    assert_eq!(
        rule.look(without_yellow.as_ref(), at(0)).remaining(),
        Some(5)
    );
    assert_eq!(
        rule.look(without_yellow.as_ref(), at(0)).class(),
        1,
        "no green tokens were refunded"
    );

    rule.settle(&mut state, &green, at(0), 1);
    assert_eq!(rule.look(state.as_ref(), at(0)).remaining(), Some(5));
    assert_eq!(
        step(&rule, &mut state, 0, 3).class(),
        0,
        "three are green again"
    );

    let before = state;
    for class in [2, 3, u32::MAX] {
        let charge = Charge::new(green.at, green.cost).with_class(class);
        rule.settle(&mut state, &charge, at(0), 0);
        assert_eq!(state, before, "a red request was never charged");
    }
}

#[test]
fn an_exhausted_client_stays_exhausted_under_a_new_rule() {
    let (rule, mut state) = (marker("2/s peak=4/s"), None);
    assert!(step(&rule, &mut state, 0, 4).is_admitted());
    for larger in ["2/s burst=50 peak=4/s peak-burst=90", "900/s peak=5000/s"] {
        assert!(!step(&marker(larger), &mut state, 0, 1).is_admitted());
    }
    let half = marker("10/s peak=10/s").look(state.as_ref(), at(SECOND / 2));
    assert_eq!((half.remaining(), half.class()), (Some(5), 0));
}

#[test]
fn invalid_texts_are_errors_with_a_column_and_a_reason() {
    for (text, column, word) in [
        ("three-color", 12, "ends too early"),
        ("three-color 5/s", 16, "no peak rate"),
        ("three-color 5/s burst=3 aware ", 30, "no peak rate"),
        (
            "three-color 5/s peak=4/s",
            22,
            "peak rate of 4/s below the committed rate of 5/s",
        ),
        (
            "three-color 300/1m peak=4/s",
            25,
            "below the committed rate",
        ),
        ("three-color 5/s peak=9", 23, "no `/`"),
        ("three-color 5/s peak=9/x", 24, "unknown unit `x`"),
        ("three-color 5/s peak", 21, "no `/`"),
        ("three-color 5/s peak=9/s peak=9/s", 26, "set twice"),
        ("three-color 5/s peak=9/s burst=0", 32, "burst of 0"),
        ("three-color 5/s peak=9/s peak-burst=0", 37, "burst of 0"),
        (
            "three-color 5/s peak=9/s peak-burst=1099511627777",
            37,
            "2^40",
        ),
        (
            "three-color 5/s peak=9/s aware=yes",
            32,
            "no value for `aware`",
        ),
        (
            "three-color 5/s peak=9/s given=red",
            32,
            "`given` without `aware`",
        ),
        (
            "three-color 5/s peak=9/s aware given=blue",
            38,
            "expected `green`, `yellow` or `red`",
        ),
        ("three-color 5/s peek=9/s", 17, "unknown setting `peek`"),
        (
            "token-bucket 5/s & three-color 5/s peak=1/s",
            41,
            "below the committed rate",
        ),
    ] {
        let error = text.parse::<AnyRule>().unwrap_err();
        assert!(error.to_string().contains(word), "{text}: {error}");
        assert_eq!(error.column(), Some(column), "{text}: {error}");
    }
    let same = ThreeColor::try_new(Quota::per_minute(60), Quota::per_second(1)).unwrap();
    assert_eq!(same.to_string(), "three-color 60/1m peak=1/s");
    assert_eq!(
        format!("{same:?}"),
        "ThreeColor(three-color 60/1m peak=1/s)"
    );
    assert!(same.try_burst(0).is_err());
    assert!(same.try_peak_burst(u64::MAX).is_err());
    let text = "three-color 5/s given=green aware peak-burst=9 peak=9/s burst=5";
    assert_eq!(
        text.parse::<ThreeColor>().unwrap().to_string(),
        "three-color 5/s peak=9/s aware"
    );
}

#[test]
#[should_panic(expected = "below the committed rate")]
fn a_literal_peak_below_the_committed_rate_panics() {
    let _ = ThreeColor::new(Quota::per_second(2), Quota::per_second(1));
}

#[test]
fn states_are_small() {
    assert_eq!(size_of::<ThreeColorState>(), 24);
    assert_eq!(marker("5/s peak=9/s").class_bits(), 1);
}
