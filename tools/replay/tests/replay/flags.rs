//! The command line, and the end of the program.

use std::{
    io::{Read, Write},
    process::{Command, Stdio},
    time::Duration,
};

use crate::program::{HEADER, TempFile, binary, replay, under, wait};

#[test]
fn wrong_flags_are_errors_of_one_sentence() {
    let rule = "--rule=token-bucket 1/s";
    for (args, part) in [
        (&[][..], "no --rule"),
        (&["--rule"], "--rule needs a value"),
        (&["--rule", "token-bucket 5/10x"], "unknown unit `x`"),
        (&["--rule", "bucket 5/10s"], "unknown algorithm `bucket`"),
        (&["--rule", "in-flight 8"], "counts calls in flight"),
        (&[rule, rule], "--rule is given twice"),
        (&[rule, "--format", "tsv"], "expected csv or combined"),
        (&[rule, "--csv", "--format=csv"], "--format is given twice"),
        (&[rule, "--csv=yes"], "--csv takes no value"),
        (&[rule, "--key", "peer-ip"], "--key is for access logs"),
        (&[rule, "--top=3"], "--top is for access logs"),
        (
            &[rule, "--compare=fixed-window 1/s"],
            "--compare is for access logs",
        ),
        (&[rule, "--compare"], "--compare needs a value"),
        (
            &[rule, "--format=combined", "--compare", "bucket 5/10s"],
            "unknown algorithm `bucket`",
        ),
        (
            &[
                rule,
                "--format=combined",
                "--compare=fixed-window 1/s",
                "--compare=fixed-window 2/s",
            ],
            "--compare is given twice",
        ),
        (
            &[rule, "--format=combined", "--key=hosts"],
            "expected `peer-ip`",
        ),
        (
            &[rule, "--format=combined", "--top=some"],
            "expected a whole number",
        ),
        (&[rule, "--keys", "0"], "expected at least 1"),
        (&[rule, "--keys", "-1"], "expected a whole number"),
        (&[rule, "--plot"], "--plot needs a value"),
        (
            &[rule, "--config=a.toml"],
            "--config does not go with --rule",
        ),
        (
            &["--config=a.toml", "--format=csv"],
            "--config does not go with --format csv",
        ),
        (&[rule, "--colour"], "unknown flag `--colour`"),
        (&[rule, "-x"], "unknown flag `-x`"),
    ] {
        let end = replay(args, "");
        assert_eq!(end.code, Some(2), "{args:?}: {}", end.errors);
        assert_eq!(end.text(), "", "{args:?}");
        assert!(
            end.errors.starts_with("replay: ") && end.errors.contains(part),
            "{args:?}: {}",
            end.errors
        );
        assert_eq!(end.errors.lines().count(), 1, "{}", end.errors);
    }
}

#[test]
fn help_names_every_flag() {
    let end = replay(&["--help"], "");
    assert_eq!((end.code, &*end.errors), (Some(0), ""));
    for flag in [
        "--rule",
        "--compare",
        "--format",
        "--csv",
        "--key",
        "--top",
        "--keys",
        "--plot",
        "--help",
    ] {
        assert!(end.text().contains(flag), "{flag}");
    }
}

#[test]
fn a_missing_file_is_an_error_before_anything_is_read() {
    let there = TempFile::holding("there.csv", "1,a,1\n");
    let end = replay(
        &[
            "--rule=token-bucket 1/s",
            there.path(),
            "/nowhere/at/all.csv",
        ],
        "",
    );
    assert_eq!((end.code, end.text()), (Some(1), ""));
    assert!(
        end.errors.contains("cannot read /nowhere/at/all.csv: "),
        "{}",
        end.errors
    );
}

#[test]
fn files_are_read_one_after_the_other() {
    let first = TempFile::holding("first.csv", "t_ns,key,cost\n1,a,1\nx\n");
    let second = TempFile::holding("second.csv", "t_ns,key,cost\r\n\r\n2,a,1\r\ny");
    let end = replay(
        &["--rule=token-bucket 1/s", first.path(), "-", second.path()],
        "1,b,1\n",
    );
    assert_eq!(
        end.lines(),
        [
            "1,a,allow,0,0,0,1000000000,",
            "1,b,allow,0,0,0,1000000000,",
            "2,a,deny,,0,999999999,999999999,"
        ]
    );
    for place in [
        format!("{}, line 3: ", first.path()),
        format!("{}, line 4: ", second.path()),
    ] {
        assert!(end.errors.contains(&place), "{}", end.errors);
    }
    assert_eq!(end.code, Some(1));
}

#[test]
fn a_closed_output_ends_the_program_quietly() {
    let mut child = Command::new(binary())
        .arg("--rule=token-bucket 1/s")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut stdin = child.stdin.take().expect("its input is piped");
    let mut stdout = child.stdout.take().expect("its output is piped");
    let writer = std::thread::spawn(move || {
        // More than all buffers hold, so that the program notices the closed output. At the end its
        // input is closed, too.
        let lines = "1,somebody,1\n".repeat(1000);
        (0..1000).all(|_| stdin.write_all(lines.as_bytes()).is_ok())
    });
    let mut begin = [0; HEADER.len()];
    stdout.read_exact(&mut begin).expect("a header comes first");
    assert_eq!(begin, HEADER.as_bytes());
    drop(stdout);
    assert_eq!(wait(&mut child, Duration::from_secs(60)), Some(0));
    assert!(!writer.join().expect("no panic"), "it read to the end");
    let mut errors = String::new();
    let mut stderr = child.stderr.take().expect("its errors are piped");
    stderr.read_to_string(&mut errors).expect("UTF-8");
    assert_eq!(errors, "");
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_an_error() {
    use std::fs::File;
    let full = || {
        File::options()
            .write(true)
            .open("/dev/full")
            .expect("it is there")
    };
    let mut child = Command::new(binary())
        .args(["--rule=token-bucket 1/s", "/dev/null"])
        .stdout(full())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    assert_eq!(wait(&mut child, Duration::from_secs(60)), Some(1));
    let mut errors = String::new();
    let mut stderr = child.stderr.take().expect("its errors are piped");
    stderr.read_to_string(&mut errors).expect("UTF-8");
    assert!(
        errors.starts_with("replay: cannot write the output: "),
        "{errors}"
    );

    let end = replay(&["--rule=token-bucket 1/s", "--plot=/dev/full"], "1,a,1\n");
    assert_eq!((end.code, end.lines().len()), (Some(1), 1));
    assert!(
        end.errors.contains("cannot write /dev/full: "),
        "{}",
        end.errors
    );
}

#[test]
fn an_empty_input_has_no_answers() {
    for input in [
        "",
        "\n",
        "\r\n\n",
        "t_ns,key,cost\n",
        "\n\nt_ns,key,cost\n",
        "\r\n\r\nt_ns,key,cost\r\n",
        "t_ns,key,cost,op,class\r\n",
    ] {
        let end = under("token-bucket 1/s", input);
        assert_eq!(end.clean(), [""; 0], "{input:?}");
        assert_eq!(end.text(), format!("{HEADER}\n"));
    }
}
