//! Access logs and the report on them.

use crate::program::{End, TempFile, replay};

const ONE: &str = "--rule=token-bucket 1/1m";

fn log(args: &[&str], input: impl AsRef<[u8]>) -> End {
    replay(&[&["--format", "combined"], args].concat(), input)
}

/// Returns the words of the first line that begins with `name`.
#[track_caller]
fn words<'a>(end: &'a End, name: &str) -> Vec<&'a str> {
    let mut lines = end.text().lines().map(str::trim);
    let line = lines.find(|line| line.starts_with(name));
    let line = line.unwrap_or_else(|| panic!("no `{name}` in\n{}{}", end.text(), end.errors));
    line.split_whitespace().collect()
}

/// Returns the numbers of lines read, admitted, delayed and refused.
#[track_caller]
fn totals(end: &End) -> [&str; 4] {
    ["lines", "admitted", "delayed", "refused"].map(|name| words(end, name)[1])
}

/// Returns the lines of the table as words.
fn table(end: &End) -> Vec<Vec<&str>> {
    end.text()
        .lines()
        .skip_while(|line| !line.contains("first refusal"))
        .skip(1)
        .take_while(|line| !line.is_empty())
        .map(|line| line.split_whitespace().collect())
        .collect()
}

#[test]
fn the_report_lists_the_refused_keys() {
    let input = r#"203.0.113.7 - - [10/Oct/2000:13:55:00 -0700] "GET /a HTTP/1.1" 200 1
203.0.113.7 - - [10/Oct/2000:13:55:15 -0700] "GET /b HTTP/1.1" 200 2
203.0.113.7 - - [10/Oct/2000:13:55:40 -0700] "GET /c HTTP/1.1" 200 3
2001:db8::1 - frank [10/Oct/2000:20:56:00 +0000] "GET /a HTTP/1.1" 200 1 "-" "curl/8.0"
203.0.113.7 - - [10/Oct/2000:13:56:00 -0700] "GET /a HTTP/1.1" 200 1
2001:db8::1 - frank [11/Oct/2000:02:27:00 +0530] "GET /a HTTP/1.1" 200 1 "-" "curl/8.0"
2001:db8::1 - frank [10/Oct/2000:20:57:10 +0000] "GET /a HTTP/1.1" 200 1 "-" "curl/8.0"
198.51.100.1 - - [10/Oct/2000:20:57:10 +0000] "GET /a HTTP/1.1" 200 1
"#;
    let end = log(&[ONE], input);
    assert_eq!((end.code, &*end.errors), (Some(0), ""));
    assert_eq!(
        end.text(),
        "\
token-bucket 1/1m, for each peer-ip

  lines     8
  admitted  5  62.5 %
  delayed   0   0.0 %
  refused   3  37.5 %

Who would have been refused: 2 keys

  refused  admitted  first refusal         last refusal          longest wait  waits in all  peer-ip
        2         2  2000-10-10T20:55:15Z  2000-10-10T20:55:40Z          45 s    1 min 05 s  203.0.113.7
        1         2  2000-10-10T20:57:10Z  2000-10-10T20:57:10Z          50 s          50 s  2001:db8::

Clients that come again when they are told to would have waited 1 min 55 s in all, at most 50 s at a time.
"
    );
}

#[test]
fn the_report_lists_only_the_top_keys_most_refused_first() {
    let mut input = String::new();
    for client in 1..=30 {
        for _ in 0..=client % 10 {
            input += &format!(
                "10.0.0.{client:02} - - [10/Oct/2000:13:55:36 +0000] \"GET / HTTP/1.0\" 200 -\r\n"
            );
        }
    }
    let of = |args: &[&str]| {
        let end = log(&[&[ONE], args].concat(), &input);
        assert_eq!((end.code, &*end.errors), (Some(0), ""));
        assert_eq!(totals(&end), ["165", "30", "0", "135"]);
        let named: Vec<_> = table(&end)
            .iter()
            .map(|row| (row[0].to_owned(), row[row.len() - 1].to_owned()))
            .collect();
        named
    };
    let named = of(&[]);
    assert_eq!(named.len(), 20);
    let expected = ["10.0.0.09", "10.0.0.19", "10.0.0.29", "10.0.0.08"];
    let firsts: Vec<_> = named[..4]
        .iter()
        .map(|(count, key)| (&**count, &**key))
        .collect();
    assert_eq!(
        firsts,
        [
            ("9", expected[0]),
            ("9", expected[1]),
            ("9", expected[2]),
            ("8", expected[3])
        ]
    );
    assert_eq!(of(&["--top", "1"]), named[..1]);
    assert_eq!(of(&["--top=0"]), []);
    assert_eq!(of(&["--top=1000"]).len(), 27);
}

#[test]
fn keys_are_hosts_users_or_paths() {
    let input = r#"10.0.0.1 - frank [10/Oct/2000:13:55:36 +0000] "GET /a?x=1 HTTP/1.1" 200 1
10.0.0.2 - frank [10/Oct/2000:13:55:36 +0000] "POST /a HTTP/1.1" 200 1 "-" "x"
10.0.0.3 - - [10/Oct/2000:13:55:36 +0000] "GET http://example.com/a?y HTTP/1.1" 200 1
10.0.0.3 - ann b [10/Oct/2000:13:55:36 +0000] "GET /b%20c/d e HTTP/1.1" 200 1
10.0.0.4 - ann b [10/Oct/2000:13:55:36 +0000] "GET /b%20c/d e#top" 200 1
10.0.0.5 - - [10/Oct/2000:13:55:36 +0000] "-" 408 -
10.0.0.6 - - [10/Oct/2000:13:55:36 +0000] "\x16\x03\x01 \x00" 400 150
10.0.0.6 - - [10/Oct/2000:13:55:36 +0000] "" 400 0
10.0.0.7 - ann [10/Oct/2000:13:55:36 +0000] "GET https://example.com HTTP/1.1" 200 1
10.0.0.8 - ann [10/Oct/2000:13:55:36 +0000] "GET / HTTP/1.0" 200 1
"#;
    for (key, read, refused, without) in [
        (
            "peer-ip",
            ["10", "8", "0", "2"],
            &["10.0.0.3", "10.0.0.6"][..],
            None,
        ),
        (
            "header remote-user",
            ["10", "3", "0", "3"],
            &["ann", "ann b", "frank"],
            Some("4"),
        ),
        (
            "path",
            ["10", "3", "0", "4"],
            &["/a", "/", "/b%20c/d e"],
            Some("3"),
        ),
    ] {
        let end = log(&[ONE, "--key", key], input);
        assert_eq!((end.code, &*end.errors), (Some(0), ""));
        assert_eq!(totals(&end), read, "{key}");
        let named: Vec<_> = table(&end).iter().map(|row| row.join(" ")).collect();
        assert_eq!(named.len(), refused.len(), "{}", end.text());
        for (named, refused) in named.iter().zip(refused) {
            assert!(
                named.ends_with(&format!(" {refused}")),
                "{named}: not {refused}"
            );
        }
        let end_without = end
            .text()
            .contains("without a key")
            .then(|| words(&end, "without a key")[3]);
        assert_eq!(end_without, without, "{key}");
    }
}

#[test]
fn formats_of_real_logs_are_parsed() {
    for line in [
        // The Common and the Combined format, from the documentation of Apache.
        r#"127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /apache_pb.gif HTTP/1.0" 200 2326"#,
        r#"127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /apache_pb.gif HTTP/1.0" 200 2326 "http://www.example.com/start.html" "Mozilla/4.08 [en] (Win98; I ;Nav)""#,
        r#"::1 - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1" 200 2326"#,
        r#"2001:db8:85a3::8a2e:370:7334 - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/2.0" 304 - "-" "-""#,
        r#"client.example.com ident user@example.com [10/Oct/2000:13:55:36 -0700] "GET / HTTP/2.0" 304 0 "-" "-""#,
        // Quotes as escaped by Apache and by nginx, and a backslash before the last quote.
        r#"::1 - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1" 200 1 "-" "say \"hi\" and \\""#,
        r#"::1 - - [10/Oct/2000:13:55:36 -0700] "GET /\"quoted\" HTTP/1.1" 200 1 "\"" "\x22hi\x22 \x5C""#,
        // Additional words after the user agent, an aborted request, and a user with spaces and
        // brackets.
        r#"::1 - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1" 499 0 "-" "curl" 0.005 "10.0.0.1""#,
        r#"::1 - - [10/Oct/2000:13:55:36 -0700] "-" 408 -"#,
        r#"::1 - - [10/Oct/2000:13:55:36 -0700] "-" - - "-" "-""#,
        r#"::1 - ann [admin] b [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1" 200 1"#,
    ] {
        let end = log(&[ONE, "--key=peer-ip"], line);
        assert_eq!((end.code, &*end.errors), (Some(0), ""), "{line}");
        assert_eq!(totals(&end), ["1", "1", "0", "0"], "{line}");
    }
    let user_agent =
        b"::1 - - [10/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.1\" 200 1 \"-\" \"\xff\"\n";
    assert_eq!(log(&[ONE], user_agent).code, Some(0));
}

#[test]
fn malformed_lines_are_reported_by_number_and_skipped() {
    let broken = [
        ("nonsense", "no host"),
        (" ", "no host"),
        ("::1", "no host"),
        ("::1 -", "no ident"),
        ("::1 - -", "no time"),
        (
            "::1 - [10/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.1\" 200 1",
            "no time",
        ),
        (
            "::1 - - [32/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.1\" 200 1",
            "no time",
        ),
        ("::1 - - [10/Oct/2000:13:55:36 -0700", "no time"),
        (
            "::1 - - 10/Oct/2000:13:55:36 -0700 \"GET / HTTP/1.1\" 200 1",
            "no time",
        ),
        (
            "::1 - - [31/Dec/1969:13:55:36 +0000] \"GET / HTTP/1.1\" 200 1",
            "no time",
        ),
        (
            "www.example.com:443 ::1 - - [10/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.1\" 200 1",
            "four words",
        ),
        ("::1 - - [10/Oct/2000:13:55:36 -0700]", "no request"),
        (
            "::1 - - [10/Oct/2000:13:55:36 -0700] GET / HTTP/1.1 200 1",
            "no request",
        ),
        (
            "::1 - - [10/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.1",
            "no request",
        ),
        (
            "::1 - - [10/Oct/2000:13:55:36 -0700] \"GET /\\\" 200 1",
            "no request",
        ),
        (
            "::1 - - [10/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.1\"",
            "no status",
        ),
        (
            "::1 - - [10/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.1\" 200",
            "no status",
        ),
        (
            "::1 - - [10/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.1\" 200 ",
            "no status",
        ),
        (
            "::1 - - [10/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.1\" 20 1",
            "no status",
        ),
        (
            "::1 - - [10/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.1\" abc 1",
            "no status",
        ),
        (
            "::1 - - [10/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.1\" 200 1k",
            "no status",
        ),
        (
            "::1 - - [10/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.1\" 200 1 -",
            "an ending of neither",
        ),
        (
            "::1 - - [10/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.1\" 200 1 \"-\"",
            "an ending of neither",
        ),
        (
            "::1 - - [10/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.1\" 200 1 \"-\" \"Mozi",
            "an ending of neither",
        ),
        (
            "::1 - - [10/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.1\" 200 1 \"-\" \"a\"b\"",
            "an ending of neither",
        ),
    ];
    let good = "10.0.0.1 - - [10/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.1\" 200 1";
    let lines: Vec<_> = broken
        .iter()
        .map(|(line, _)| format!("{line}\n\n{good}\n"))
        .collect();
    let file = TempFile::holding("broken.log", &lines.concat());
    let end = log(&[ONE, file.path()], "");
    assert_eq!(end.code, Some(1));
    let count = broken.len().to_string();
    assert_eq!(
        totals(&end),
        [
            &*(2 * broken.len()).to_string(),
            "1",
            "0",
            &(broken.len() - 1).to_string()
        ]
    );
    assert_eq!(words(&end, "malformed")[1], count);
    let errors: Vec<_> = end.errors.lines().collect();
    assert_eq!(errors.len(), broken.len(), "{errors:?}");
    for (index, ((line, part), error)) in broken.iter().zip(errors).enumerate() {
        let place = format!("replay: {}, line {}: {part}", file.path(), 3 * index + 1);
        assert!(error.starts_with(&place), "{line}: {error}");
    }
}

#[test]
fn several_files_are_one_log() {
    let line = "::1 - - [10/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.1\" 200 1\n";
    let files = ["one.log", "two.log"].map(|name| TempFile::holding(name, line));
    let end = log(&[ONE, files[0].path(), files[1].path()], "");
    assert_eq!((end.code, totals(&end)), (Some(0), ["2", "1", "0", "1"]));
    // Without a terminal there is no progress bar.
    assert_eq!(end.errors, "");
}

#[test]
fn control_characters_of_a_log_are_escaped() {
    let line = b"\x1b[31mred\x07 - - [10/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.1\" 200 1\n";
    let end = log(&[ONE], line.repeat(2));
    assert!(end.text().contains(r"\u{1b}[31mred\u{7}"), "{}", end.text());
    assert!(!end.text().contains('\x1b'));
}

#[test]
fn the_number_of_keys_can_be_limited() {
    let line =
        |host: &str| format!("{host} - - [10/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.1\" 200 1\n");
    let input = ["a", "a", "b", "c", "b"].map(line).concat();
    let end = log(&[ONE, "--keys=1"], input);
    assert_eq!(end.code, Some(0));
    assert_eq!(totals(&end), ["5", "1", "0", "4"]);
    assert_eq!(words(&end, "turned away")[2], "3");
    let named: Vec<_> = table(&end)
        .iter()
        .map(|row| (row[0], row[row.len() - 1]))
        .collect();
    assert_eq!(named, [("1", "a")]);
    assert_eq!(words(&end, "3 more refusals")[0], "3");
}

#[test]
fn times_may_step_back() {
    let line = |second: u32| {
        format!("::1 - - [10/Oct/2000:13:55:{second:02} +0000] \"GET / HTTP/1.1\" 200 1\n")
    };
    let end = log(
        &["--rule=token-bucket 1/10s"],
        [20, 10, 29, 15, 30].map(line).concat(),
    );
    assert_eq!(totals(&end), ["5", "2", "0", "3"]);
    let row = &table(&end)[0];
    assert_eq!(row[2..4], ["2000-10-10T13:55:10Z", "2000-10-10T13:55:29Z"]);
    // Refused from the tenth second until the thirtieth: waits of 20 s, 1 s and 15 s.
    assert_eq!(row[4..8], ["20", "s", "36", "s"]);
}

#[test]
fn a_byte_order_mark_is_not_part_of_the_first_host() {
    let line = r#"::1 - - [10/Oct/2000:13:55:36 +0000] "GET / HTTP/1.1" 200 1"#;
    let end = log(&[ONE], format!("\u{feff}{line}\n{line}\n"));
    assert_eq!(totals(&end), ["2", "1", "0", "1"]);
}
