//! Rules other than token buckets: delays, classes, colors, windows that depend on the key.

use std::collections::HashSet;

use crate::program::{replay, under};

#[test]
fn queue_delays_calls() {
    let input = "\
0,a,1
0,a,1
0,a,1
0,a,1
0,a,1,look
0,a,0,refund
250000000,a,1,look
";
    let expected = [
        "0,a,allow,0,2,0,500000000,",
        "0,a,delay,0,1,0,1000000000,500000000",
        "0,a,delay,0,0,0,1500000000,1000000000",
        "0,a,deny,,0,500000000,1500000000,",
        "0,a,deny,,0,500000000,1500000000,",
        "0,a,allow,0,1,,1000000000,",
        "250000000,a,delay,0,1,0,750000000,750000000",
    ];
    assert_eq!(under("leaky-bucket 2/1s queue=2", input).clean(), expected);
}

#[test]
fn delays_are_reported() {
    let line = "::1 - - [10/Oct/2000:13:55:36 +0000] \"GET / HTTP/1.1\" 200 1\n";
    let rule = "--rule=leaky-bucket 2/1s queue=2";
    let end = replay(&["--format=combined", rule], line.repeat(4));
    assert_eq!(
        end.text(),
        "\
leaky-bucket 2/s, for each peer-ip

  lines     4
  admitted  1  25.0 %
  delayed   2  50.0 %
  refused   1  25.0 %

Who would have been refused: 1 key

  refused  admitted  delayed  first refusal         last refusal          longest wait  waits in all  peer-ip
        1         1        2  2000-10-10T13:55:36Z  2000-10-10T13:55:36Z        500 ms        500 ms  ::

Clients that come again when they are told to would have waited 500 ms in all, at most 500 ms at a time.

Delayed requests would have waited 1.5 s in all, at most 1 s at a time.
"
    );
}

#[test]
fn classes_of_a_cascade_are_reported() {
    let input = "0,a,1\n0,a,1\n0,a,1\n0,a,0,refund\n0,a,1\n";
    let expected = [
        "0,a,allow,0,1,0,1000000000,",
        "0,a,allow,1,0,0,1000000000,",
        "0,a,deny,,0,1000000000,1000000000,",
        "0,a,allow,1,1,,1000000000,",
        "0,a,allow,1,0,0,1000000000,",
    ];
    assert_eq!(under("cascade 1/s > 1/s", input).clean(), expected);
}

#[test]
fn colors_matter_to_color_aware_markers() {
    let marker = "three-color 1/s burst=1 peak=2/s peak-burst=2";
    let input = "\
0,a,1,,0
0,a,1,,0
0,a,1,,0
0,b,1,look,1
0,b,1,,1
0,b,1,,2
0,b,1
";
    let verdicts = |rule: &str| {
        let end = under(rule, input);
        let lines = end.clean();
        let fields = lines.iter().map(|line| line.split(',').skip(2).take(2));
        fields
            .map(|fields| fields.collect::<Vec<_>>().join(" "))
            .collect::<Vec<_>>()
    };
    let aware = [
        "allow 0", "allow 1", "deny ", "allow 1", "allow 1", "deny ", "allow 0",
    ];
    let blind = [
        "allow 0", "allow 1", "deny ", "allow 0", "allow 0", "allow 1", "deny ",
    ];
    for more in ["", " & token-bucket 9/1s"] {
        assert_eq!(verdicts(&format!("{marker} aware{more}")), aware);
        assert_eq!(verdicts(&format!("{marker}{more}")), blind);
    }
}

#[test]
fn windows_are_those_of_the_calendar() {
    let input = "59000000000,a,2\n59000000000,a,1\n60000000000,a,1\n60000000000,a,0,refund\n";
    let expected = [
        "59000000000,a,allow,0,0,0,1000000000,",
        "59000000000,a,deny,,0,1000000000,1000000000,",
        "60000000000,a,allow,0,1,0,60000000000,",
        "60000000000,a,allow,0,2,,0,",
    ];
    assert_eq!(under("fixed-window 2/1m", input).clean(), expected);
    let input = "0,a,1\n400000000,a,1\n999999999,a,1\n1000000000,a,1\n";
    let expected = [
        "0,a,allow,0,1,0,1000000000,",
        "400000000,a,allow,0,0,0,1000000000,",
        "999999999,a,deny,,0,1,400000001,",
        "1000000000,a,allow,0,0,0,1000000000,",
    ];
    assert_eq!(under("sliding-log 2/1s", input).clean(), expected);
    // Three quarters of the four still count, so one more passes.
    let input = "0,a,4\n1250000000,a,2\n1250000000,a,1\n1250000000,a,1\n";
    let end = under("sliding-window 4/1s slices=1", input);
    let verdicts: Vec<_> = end
        .clean()
        .iter()
        .map(|line| line.split(',').nth(2))
        .collect();
    assert_eq!(verdicts, ["allow", "deny", "allow", "deny"].map(Some));
}

/// The offset of a key's window depends on the digest of its `Key`, as in `Local` and every other
/// store.
#[test]
fn spread_windows_equal_those_of_stores() {
    use tollgate::{AnyRule, Cost, Timestamp, algorithm::Algorithm, key::Key};
    for text in [
        "fixed-window 1/1h offset=spread",
        "fixed-window 1/1h offset=spread & token-bucket 9/1s",
    ] {
        let rule: AnyRule = text.parse().expect("a rule");
        let (mut input, mut expected, mut ends) = (String::new(), Vec::new(), HashSet::new());
        let at = 1_700_000_000_000_000_000;
        for round in 0..2 {
            for name in (0..40).map(|n| format!("client-{n}")) {
                input += &format!("{},{name},1\n", at + round);
                let own = rule
                    .for_key(&|| Key::from(&name).digest())
                    .expect("one for each key");
                let mut state = None;
                let first = own
                    .step(&mut state, Timestamp::from_nanos(at), Cost::ONE)
                    .decision();
                let end = at + first.reset_after().as_nanos() as u64;
                ends.insert(end);
                let wait = end - at - round;
                expected.push(match round {
                    0 => format!("{at},{name},allow,0,0,0,{wait},"),
                    _ => format!("{},{name},deny,,0,{wait},{wait},", at + round),
                });
            }
        }
        assert_eq!(under(text, &input).clean(), expected);
        assert!(ends.len() > 30, "{} different windows", ends.len());
        // Also if keys are forgotten, and if the rule returns.
        let input = format!("{at},,0,rule,token-bucket 1/1s\n{at},,0,rule,{text}\n{input}");
        assert_eq!(under(text, &input).clean(), expected);
    }
}

#[test]
fn another_algorithm_starts_without_debt() {
    let input = "\
0,a,2
0,,0,rule,fixed-window 1/1m
0,a,0,refund
0,a,1
0,a,1
0,,0,rule,token-bucket 2/1s
0,a,2
";
    let expected = [
        "0,a,allow,0,0,0,1000000000,",
        // Charges under another algorithm are kept.
        "0,a,allow,0,1,,0,",
        "0,a,allow,0,0,0,60000000000,",
        "0,a,deny,,0,60000000000,60000000000,",
        "0,a,allow,0,0,0,1000000000,",
    ];
    assert_eq!(under("token-bucket 2/1s", input).clean(), expected);
}

/// Every rule on every kind of line, with and without a maximum number of keys.
#[test]
fn every_rule_answers_every_line() {
    let mut lines = Vec::new();
    let (mut random, mut now) = (7_u64, 1_700_000_000_000_000_000_u64);
    for _ in 0..2_000 {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let draw = |below: u64, bit: u32| (random >> bit) % below;
        now = now + draw(200_000_000, 20) - draw(2, 13) * draw(150_000_000, 24);
        let op = ["", "", "", "look", "refund"][draw(5, 40) as usize];
        let class = ["", "0", "1", "2"][draw(4, 33) as usize];
        lines.push(format!(
            "{now},k{},{},{op},{class}\n",
            draw(20, 36),
            1 + draw(3, 45)
        ));
    }
    let input = lines.concat();
    for rule in [
        "token-bucket 100/1m burst=15 initial=30 keep=1m",
        "leaky-bucket 2/s queue=5 max-wait=2s",
        "fixed-window 10/1m offset=10s",
        "fixed-window 10/1m offset=spread",
        "fixed-window 10/1m from=first-call",
        "sliding-window 10/1m slices=4",
        "sliding-log 10/1m",
        "warm-up 20/s over=10s cold=3",
        "warm-up-spaced 2/s over=4s cold=3 max-wait=5s",
        "cascade 1/s burst=4 > 1/2s burst=2",
        "three-color 1/s burst=2 peak=2/s peak-burst=4 aware",
        "token-bucket 10/s & fixed-window 10/1m offset=spread & three-color 1/s peak=2/s aware",
    ] {
        for keys in ["3", "1000"] {
            let end = replay(&["--rule", rule, "--keys", keys], &input);
            assert_eq!(end.code, Some(0), "{rule}: {}", end.errors);
            let answers = end.lines();
            assert_eq!(answers.len(), lines.len(), "{rule}");
            let mut verdicts = HashSet::new();
            for (line, answer) in lines.iter().zip(answers) {
                let fields: Vec<_> = answer.split(',').collect();
                let [_, _, verdict, class, remaining, retry, reset, delay] = fields[..] else {
                    panic!("{rule}: {answer}");
                };
                assert!(line.starts_with(&fields[..2].join(",")), "{line}{answer}");
                let refund = line.contains("refund");
                match verdict {
                    "allow" => assert!(!class.is_empty() && delay.is_empty(), "{answer}"),
                    "delay" => assert!(
                        !class.is_empty() && delay.parse::<u64>().is_ok_and(|wait| wait > 0)
                    ),
                    "deny" => assert!(class.is_empty() && delay.is_empty(), "{answer}"),
                    _ => panic!("{rule}: {answer}"),
                }
                let turned_away = verdict == "deny" && remaining.is_empty() && reset.is_empty();
                assert!(
                    turned_away
                        || (remaining.parse::<u64>().is_ok() && reset.parse::<u128>().is_ok())
                );
                assert_eq!(retry == "0", verdict != "deny" && !refund, "{line}{answer}");
                verdicts.insert(verdict);
            }
            assert!(
                verdicts.contains("allow") && verdicts.contains("deny"),
                "{rule}: {verdicts:?}"
            );
            let delays = rule.starts_with("leaky") || rule.starts_with("warm-up-spaced");
            assert_eq!(verdicts.contains("delay"), delays, "{rule}");
        }
    }
}
