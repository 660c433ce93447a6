//! A maximum number of keys.

use crate::program::{End, replay};

fn capped(keys: usize, input: &str) -> End {
    let keys = keys.to_string();
    replay(
        &["--rule=token-bucket 1/1s burst=2", "--keys", &keys],
        input,
    )
}

#[test]
fn keys_that_still_matter_are_never_forgotten() {
    // a is full again at two seconds, b at three.
    let input = "\
0,a,2
1000000000,b,2
1999999999,c,1
2000000000,c,1
2000000000,b,1
2000000000,a,1
";
    let end = capped(2, input);
    assert_eq!(end.code, Some(0));
    assert_eq!(
        end.lines(),
        [
            "0,a,allow,0,0,0,2000000000,",
            "1000000000,b,allow,0,0,0,2000000000,",
            "1999999999,c,deny,,,,,",
            "2000000000,c,allow,0,1,0,1000000000,",
            "2000000000,b,allow,0,0,0,2000000000,",
            "2000000000,a,deny,,,,,",
        ]
    );
    assert_eq!(
        end.errors,
        "replay: lines turned away for lack of room: 2; a larger --keys would decide them\n"
    );
}

#[test]
fn a_sufficient_maximum_changes_no_answer() {
    let keys = 50_u64;
    let mut input = String::new();
    for n in 0..2000_u64 {
        let at = n * 37_000_000 % 20_000_000_000;
        let op = ["", "look", "refund"][usize::from(n % 7 == 0) + usize::from(n % 21 == 0)];
        input += &format!("{at},k{},1,{op}\n", n * n % keys);
    }
    let all = capped(1000, &input);
    assert_eq!(capped(keys as usize, &input).clean(), all.clean());
    assert!(all.lines().iter().any(|line| line.contains("deny")));
}

#[test]
fn calls_without_a_state_need_no_room() {
    let input = "\
0,a,1
0,b,1,look
0,b,3
0,b,0,refund
0,b,1
";
    let end = capped(1, input);
    assert_eq!(
        end.lines(),
        [
            "0,a,allow,0,1,0,1000000000,",
            "0,b,allow,0,2,0,0,",
            // Above the capacity: the rule itself refuses.
            "0,b,deny,,2,,0,",
            "0,b,deny,,2,,0,",
            "0,b,deny,,,,,",
        ]
    );
    assert!(end.errors.contains("lack of room: 1;"), "{}", end.errors);
}

#[test]
fn refunds_make_room() {
    let end = capped(1, "0,a,2\n0,b,1\n0,a,0,refund\n0,b,1\n0,c,1\n");
    let verdicts: Vec<_> = end
        .lines()
        .iter()
        .map(|line| line.split(',').nth(2))
        .collect();
    let expected = ["allow", "deny", "allow", "allow", "deny"].map(Some);
    assert_eq!(verdicts, expected);
    assert!(end.errors.contains("lack of room: 2;"), "{}", end.errors);
}

#[test]
fn a_rule_that_forgets_sooner_makes_room() {
    // Half a second refills two tokens under the second rule.
    let input = "\
0,a,2
500000000,b,1
500000000,,0,rule,token-bucket 4/1s burst=2
499999999,b,1
500000000,b,1
";
    let end = capped(1, input);
    assert_eq!(
        end.lines(),
        [
            "0,a,allow,0,0,0,2000000000,",
            "500000000,b,deny,,,,,",
            "499999999,b,deny,,,,,",
            "500000000,b,allow,0,1,0,250000000,",
        ]
    );
}

#[test]
fn a_clock_that_steps_back_forgets_no_key() {
    let end = capped(
        1,
        "9000000000,a,1\n0,b,1\n9999999999,b,1\n10000000000,b,1\n",
    );
    let verdicts: Vec<_> = end
        .lines()
        .iter()
        .map(|line| line.split(',').nth(2))
        .collect();
    assert_eq!(verdicts, ["allow", "deny", "deny", "allow"].map(Some));
}

/// Each new key finds the one key that can be forgotten, whichever it is.
#[test]
fn the_one_forgettable_key_is_found_among_many() {
    let keys = 200;
    let mut input = String::new();
    // The last key is full again a millisecond after the first second, the previous one after two,
    // and so on.
    for n in 0..keys {
        input += &format!("{},k{n},1\n", (keys - n) * 1_000_000);
    }
    let (mut expected, mut turned_away) = (keys, 0);
    for n in 0..keys {
        let at = 1_000_000_000 + (n + 1) * 1_000_000;
        input += &format!("{},early{n},2\n{at},new{n},2\n", at - 1);
        expected += 1;
        turned_away += 1;
    }
    let end = capped(keys, &input);
    let admitted = end
        .lines()
        .iter()
        .filter(|line| line.contains(",allow,"))
        .count();
    assert_eq!(admitted, expected);
    assert!(
        end.lines()
            .iter()
            .all(|line| line.contains(",allow,") != line.contains("early"))
    );
    assert!(
        end.errors
            .contains(&format!("lack of room: {turned_away};")),
        "{}",
        end.errors
    );
}
