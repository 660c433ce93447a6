//! CSV in and out, with numbers computed by hand.

use csv::ByteRecord;

use crate::program::{HEADER, under};

/// Two units at once, and one more every half second.
const TWO: &str = "token-bucket 2/1s";

#[test]
fn each_call_is_answered_with_a_line() {
    let input = "\
t_ns,key,cost
1000000000,a,1
1000000000,a,1
1000000000,a,1
1000000000,b,2
1250000000,a,1
1500000000,a,1
1500000000,a,3
3000000000,a,2
";
    let expected = [
        "1000000000,a,allow,0,1,0,500000000,",
        "1000000000,a,allow,0,0,0,1000000000,",
        "1000000000,a,deny,,0,500000000,1000000000,",
        "1000000000,b,allow,0,0,0,1000000000,",
        "1250000000,a,deny,,0,250000000,750000000,",
        "1500000000,a,allow,0,0,0,1000000000,",
        // Above the capacity: never admitted.
        "1500000000,a,deny,,0,,1000000000,",
        "3000000000,a,allow,0,0,0,1000000000,",
    ];
    assert_eq!(under(TWO, input).clean(), expected);
    // With any line endings, also without one at the end.
    for input in [
        input.replace('\n', "\r\n"),
        input.trim_end().to_owned(),
        input.replace('\n', "\r\n").trim_end().to_owned(),
        input.replace('\n', "\n\n"),
        format!("\u{feff}{input}"),
        input.replace("t_ns,key,cost\n", ""),
        input.replace("t_ns,key,cost\n", "t_ns,key,cost,op,class\n"),
        input
            .replace(",1\n", ",1,,\n")
            .replace(",2\n", ",2,spend\n"),
    ] {
        assert_eq!(under(TWO, &input).clean(), expected, "{input:?}");
    }
}

#[test]
fn keys_are_any_bytes_and_are_written_unchanged() {
    let keys: [&[u8]; 9] = [
        b"a,b",
        b"say \"hi\"",
        b"two\nlines",
        b"two\r\nlines",
        b"\xff\xfe not UTF-8 \x00",
        "Grüße, 世界".as_bytes(),
        b"",
        b" a",
        b"a",
    ];
    let mut input = csv::WriterBuilder::new()
        .terminator(csv::Terminator::CRLF)
        .from_writer(Vec::new());
    let rounds = 2;
    for _ in 0..rounds {
        for key in keys {
            input.write_record([b"7", key, b"1"]).expect("a record");
        }
    }
    let input = input.into_inner().expect("all of it");
    let end = under("token-bucket 1/s", input);
    assert_eq!((end.code, &*end.errors), (Some(0), ""));
    let mut output = csv::Reader::from_reader(&end.output[..]);
    let records: Vec<ByteRecord> = output
        .byte_records()
        .map(|record| record.expect("CSV"))
        .collect();
    assert_eq!(records.len(), rounds * keys.len());
    for (record, (index, key)) in records.iter().zip(keys.iter().cycle().enumerate()) {
        // All keys are different: each has one token of its own.
        let verdict: &[u8] = if index < keys.len() {
            b"allow"
        } else {
            b"deny"
        };
        assert_eq!((&record[1], &record[2]), (*key, verdict));
        assert_eq!(record.len(), 8);
    }
}

#[test]
fn looks_spend_nothing() {
    let input = "\
0,a,1,look
0,a,2,peek
0,a,3,look
0,a,1,spend
0,a,1,look
0,a,2,look
0,a,1,
250000000,a,1,look
250000000,a,2,look
500000000,a,1,look
";
    let expected = [
        "0,a,allow,0,2,0,0,",
        "0,a,allow,0,2,0,0,",
        "0,a,deny,,2,,0,",
        "0,a,allow,0,1,0,500000000,",
        "0,a,allow,0,1,0,500000000,",
        "0,a,deny,,1,500000000,500000000,",
        "0,a,allow,0,0,0,1000000000,",
        "250000000,a,deny,,0,250000000,750000000,",
        "250000000,a,deny,,0,750000000,750000000,",
        "500000000,a,allow,0,1,0,500000000,",
    ];
    assert_eq!(under(TWO, input).clean(), expected);
}

#[test]
fn a_refund_restores_the_last_charge_once() {
    let input = "\
0,a,0,refund
0,a,2
0,b,1
0,a,1
0,a,0,refund
0,a,99,refund
0,a,1
500000000,a,1
500000000,a,1,refund
500000000,a,1,refund
500000000,a,2
";
    let expected = [
        "0,a,deny,,2,,0,",
        "0,a,allow,0,0,0,1000000000,",
        "0,b,allow,0,1,0,500000000,",
        // A refused call is not charged, so the previous charge is still the last one.
        "0,a,deny,,0,500000000,1000000000,",
        "0,a,allow,0,2,,0,",
        "0,a,deny,,2,,0,",
        "0,a,allow,0,1,0,500000000,",
        "500000000,a,allow,0,1,0,500000000,",
        "500000000,a,allow,0,2,,0,",
        "500000000,a,deny,,2,,0,",
        "500000000,a,allow,0,0,0,1000000000,",
    ];
    assert_eq!(under(TWO, input).clean(), expected);
}

#[test]
fn colors_are_accepted_under_every_rule() {
    let input = "0,a,1,spend,0\n0,a,1,look,1\n0,a,1,,2\n0,a,0,refund,2\n";
    let expected = [
        "0,a,allow,0,1,0,500000000,",
        "0,a,allow,0,1,0,500000000,",
        "0,a,allow,0,0,0,1000000000,",
        "0,a,allow,0,1,,500000000,",
    ];
    assert_eq!(under(TWO, input).clean(), expected);
}

#[test]
fn the_rule_changes_from_a_line_on() {
    let input = "\
0,a,2
0,,0,rule,token-bucket 1/1s burst=3
0,a,1
0,b,3
500000000,,0,rule,\"token-bucket 4/1s, quoted\"
500000000,,0,rule,token-bucket 4/1s & token-bucket 5/1m
500000000,b,1
500000000,c,5
500000000,c,4
500000000,,0,rule,token-bucket 4/0s
500000000,c,1
";
    let end = under(TWO, input);
    assert_eq!(
        end.lines(),
        [
            "0,a,allow,0,0,0,1000000000,",
            // An empty bucket stays empty.
            "0,a,deny,,0,1000000000,3000000000,",
            "0,b,allow,0,0,0,3000000000,",
            // A bucket's state does not apply to a pair of rules.
            "500000000,b,allow,0,3,0,12000000000,",
            "500000000,c,deny,,4,,0,",
            "500000000,c,allow,0,0,0,48000000000,",
            // The last rule was invalid, so the previous one stays in force.
            "500000000,c,deny,,0,250000000,48000000000,",
        ]
    );
    assert_eq!(end.code, Some(1));
    let errors: Vec<_> = end.errors.lines().collect();
    assert_eq!(errors.len(), 3, "{errors:?}");
    assert!(
        errors[0].contains("line 5: the rule stays as it was: "),
        "{errors:?}"
    );
    assert!(
        errors[1].contains("line 10: the rule stays as it was: "),
        "{errors:?}"
    );
}

#[test]
fn malformed_lines_are_reported_by_number_and_skipped() {
    let malformed: &[(&[u8], &str)] = &[
        (b"x", "1 field:"),
        (b"1,a", "2 fields:"),
        (b"1,a,1,,,", "6 fields:"),
        (b"1,a,b,1,look,0", "6 fields:"),
        (b",a,1", "the time is ``"),
        (b"1.5,a,1", "the time is `1.5`"),
        (b" 1,a,1", "the time is ` 1`"),
        (b"-1,a,1", "the time is `-1`"),
        (b"+1,a,1", "the time is `+1`"),
        (b"1e9,a,1", "the time is `1e9`"),
        (
            b"9223372036854775808,a,1",
            "the time is `9223372036854775808`",
        ),
        (
            b"99999999999999999999,a,1",
            "the time is `99999999999999999999`",
        ),
        (b"t_ns,key,cost", "the time is `t_ns`"),
        (b"1,a,", "the cost is ``"),
        (b"1,a,0", "the cost is `0`"),
        (b"1,a,0,look", "the cost is `0`"),
        (b"1,a,-1", "the cost is `-1`"),
        (b"1,a,1.0", "the cost is `1.0`"),
        (
            b"1,a,18446744073709551616",
            "the cost is `18446744073709551616`",
        ),
        (b"1,a,,refund", "the cost of a refund is ``"),
        (b"1,a,all,refund", "the cost of a refund is `all`"),
        (b"1,a,1,Spend", "the op is `Spend`"),
        (b"1,a,1,spent", "the op is `spent`"),
        (b"1,a,1,\xff", "the op is `\u{fffd}`"),
        (b"1,a,1,look,3", "the class is `3`"),
        (b"1,a,1,look,00", "the class is `00`"),
        (b"1,a,1,,green", "the class is `green`"),
        (b"1,,0,rule", "no rule"),
        (b"1,,0,rule,", "no rule"),
        (b"1,,0,rule,bucket 1/s", "unknown algorithm `bucket`"),
        (b"1,,0,rule,token-bucket 0/s", "expected at least 1"),
        (b"1,,0,rule,token\xff 1/s", "not UTF-8"),
        (
            b"1,a,0,rule,token-bucket 9/s",
            "a rule for a key or with a cost",
        ),
        (
            b"1,,1,rule,token-bucket 9/s",
            "a rule for a key or with a cost",
        ),
        (b"x,,0,rule,token-bucket 9/s", "the time is `x`"),
        (b"\"1\n2\",a,1", "the time is `1\\n2`"),
    ];
    for ending in ["\n", "\r\n"] {
        let mut input = format!("t_ns,key,cost{ending}{ending}").into_bytes();
        let (mut line, mut expected, mut numbers) = (3, Vec::new(), Vec::new());
        for (index, (bad, _)) in malformed.iter().enumerate() {
            numbers.push(line);
            input.extend_from_slice(bad);
            input.extend_from_slice(ending.as_bytes());
            let key = format!("k{index}");
            input.extend_from_slice(format!("5,{key},1{ending}").as_bytes());
            expected.push(format!("5,{key},allow,0,0,0,1000000000,"));
            line += 2 + bad.iter().filter(|byte| **byte == b'\n').count();
        }
        let end = under("token-bucket 1/s", input);
        assert_eq!(end.code, Some(1));
        assert_eq!(end.lines(), expected);
        let mut errors = end.errors.lines();
        for ((bad, part), line) in malformed.iter().zip(numbers) {
            let error = errors.next().expect("an error for each");
            assert!(
                error.starts_with(&format!("replay: standard input, line {line}: "))
                    && error.contains(part),
                "{}: {error}",
                bad.escape_ascii()
            );
        }
        let summary = format!("replay: malformed lines, skipped: {}", malformed.len());
        assert_eq!(errors.next(), Some(&*summary));
        assert_eq!(errors.next(), None);
    }
}

#[test]
fn malformed_last_lines_are_reported_by_number() {
    for (input, line) in [
        ("x", 1),
        ("\n\n\nx", 4),
        ("\n\n\nx\n", 4),
        ("\r\n\r\nx\r\n\r\n", 3),
        ("1,a,1\n\n\n2,\"open", 4),
        ("1,a,1\n\n\n2,\"open,1\n3,b,1\n", 4),
        ("1,a,1\r\n2,\"open,1\r\n3,b,1\r\n", 2),
        ("1,\"a\nb\nc\",1\n\nx", 5),
        ("1,\"a\r\nb\r\nc\",1\r\n\r\nx", 5),
    ] {
        let end = under("token-bucket 1/s", input);
        assert_eq!(end.code, Some(1), "{input:?}");
        let place = format!("replay: standard input, line {line}: ");
        assert!(end.errors.starts_with(&place), "{input:?}: {}", end.errors);
        assert_eq!(end.errors.lines().count(), 2, "{}", end.errors);
        assert_eq!(
            end.errors.contains("a quote is left open"),
            input.contains("open")
        );
    }
}

/// In RFC 4180 a quoted field may contain line breaks, so a stray quote could consume all lines up
/// to the next one.
#[test]
fn a_stray_quote_costs_only_its_own_line() {
    let answers = |keys: &[&str]| -> Vec<String> {
        let answer = |key| format!("5,{key},allow,0,0,0,1000000000,");
        keys.iter().map(answer).collect()
    };
    let open = "a quote is left open";
    let behind = "text behind the quote that ends a field";
    for (input, keys, errors) in [
        ("5,\"a,1\n5,b,1\n5,c,1\n", &["b", "c"][..], &[(1, open)][..]),
        ("5,\"a,1\r\n5,b,1\r\n5,c,1", &["b", "c"], &[(1, open)]),
        (
            "5,\"a,1\n5,b,1\n5,\"c,1\n5,d,1\n",
            &["b", "d"],
            &[(1, behind), (3, open)],
        ),
        ("5,\"a\"b,1\n5,c,1\n", &["c"], &[(1, behind)]),
        (
            "5,\"a\" ,1\n5,c,1\n5,\"a\"",
            &["c"],
            &[(1, behind), (3, "2 fields")],
        ),
        ("5,\"\"\"a,1\n\n5,b,1\n", &["b"], &[(1, open)]),
        (
            "5,a,\"1\n5,b,1\nx\n5,c,1\n",
            &["b", "c"],
            &[(1, open), (3, "1 field:")],
        ),
        ("\u{feff}\"\n5,b,1\n", &["b"], &[(1, open)]),
        // Quotes inside a field that does not begin with one are ordinary bytes.
        ("5,c\"\"d,1\n", &["\"c\"\"\"\"d\""], &[]),
    ] {
        let end = under("token-bucket 1/s", input);
        assert_eq!(end.lines(), answers(keys), "{input:?}");
        let messages: Vec<_> = end.errors.lines().collect();
        let summaries = usize::from(!errors.is_empty());
        assert_eq!(
            messages.len(),
            errors.len() + summaries,
            "{input:?}: {messages:?}"
        );
        for (message, (line, part)) in messages.iter().zip(errors) {
            let place = format!("replay: standard input, line {line}: ");
            assert!(
                message.starts_with(&place) && message.contains(part),
                "{input:?}: {message}"
            );
        }
        assert_eq!(end.code, Some(i32::from(!errors.is_empty())));
    }
}

/// Long quoted fields make records that span several buffers.
#[test]
fn records_of_any_length_are_read_whole() {
    for length in [1, 65_500, 65_536, 200_000] {
        let key = "x,\n\"".repeat(length / 4 + 1);
        let quoted = format!("\"{}\"", key.replace('"', "\"\""));
        let input = format!("5,{quoted},1\r\n").repeat(3) + "5,b,1";
        let end = under("token-bucket 1/s", input);
        assert_eq!((end.code, &*end.errors), (Some(0), ""));
        let text = end.text();
        let verdicts = [",allow,", ",deny,"].map(|verdict| text.matches(verdict).count());
        assert_eq!(verdicts, [2, 2]);
        assert_eq!(text.matches(&quoted).count(), 3, "{length}");
    }
}

#[test]
fn time_never_falls_per_key() {
    let input = "\
5000000000,a,2
1000000000,a,1
1000000000,b,2
1500000000,b,1
5499999999,a,1
5500000000,a,1
2000000000,c,1
1500000000,a,1,look
";
    let expected = [
        "5000000000,a,allow,0,0,0,1000000000,",
        // Four seconds until the key's time has caught up, and half a second more.
        "1000000000,a,deny,,0,4500000000,5000000000,",
        // Time is per key: this key has not seen the fifth second.
        "1000000000,b,allow,0,0,0,1000000000,",
        "1500000000,b,allow,0,0,0,1000000000,",
        "5499999999,a,deny,,0,1,500000001,",
        "5500000000,a,allow,0,0,0,1000000000,",
        "2000000000,c,allow,0,1,0,500000000,",
        "1500000000,a,deny,,0,4500000000,5000000000,",
    ];
    assert_eq!(under(TWO, input).clean(), expected);
}

#[test]
fn times_up_to_the_last_nanosecond_are_valid() {
    let last = i64::MAX;
    let input =
        format!("0,a,1\n{last},a,2\n{last},a,1\n0,a,18446744073709551615\n{last},a,0,refund\n");
    let expected = [
        "0,a,allow,0,1,0,500000000,".to_owned(),
        format!("{last},a,allow,0,0,0,1000000000,"),
        format!("{last},a,deny,,0,500000000,1000000000,"),
        format!("0,a,deny,,0,,{},", i128::from(last) + 1_000_000_000),
        format!("{last},a,allow,0,2,,0,"),
    ];
    assert_eq!(under(TWO, input).clean(), expected);
    // The longest wait that a bucket has.
    let slow = "token-bucket 1/8d burst=1000";
    assert_eq!(
        under(slow, "0,a,1000\n0,a,1000\n").clean(),
        [
            "0,a,allow,0,0,0,691200000000000000,",
            "0,a,deny,,0,691200000000000000,691200000000000000,"
        ]
    );
}

#[test]
fn answers_begin_with_the_documented_header() {
    let end = under(TWO, "1,a,1\n");
    assert_eq!(
        end.text(),
        format!("{HEADER}\n1,a,allow,0,1,0,500000000,\n")
    );
}
