//! The quickstart example as a user runs it: the program, its output, and HTTP.
#![cfg(all(feature = "axum", feature = "tokio"))]

use std::{
    env, fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        OnceLock,
        mpsc::{Receiver, channel},
    },
    thread,
    time::{Duration, Instant},
};

#[cfg(feature = "config")]
mod file;
#[cfg(feature = "redis")]
mod haproxy;
#[cfg(any(feature = "redis", feature = "memcached"))]
mod leased;
#[cfg(feature = "memcached")]
mod memcached;
#[cfg(all(unix, any(feature = "redis", feature = "memcached")))]
mod shutdown;
#[cfg(feature = "redis")]
mod store;
#[cfg(feature = "redis")]
mod synced;
#[cfg(feature = "redis")]
mod together;

#[cfg(any(feature = "redis", feature = "memcached"))]
use support::servers;

const SOON: Duration = Duration::from_secs(20);

#[expect(clippy::disallowed_methods, reason = "tests wait in real time")]
fn now() -> Instant {
    Instant::now()
}

/// Serializes tests that need the whole machine or depend on timing.
#[cfg(any(feature = "redis", feature = "memcached"))]
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    ALONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// A child process, killed when it is dropped.
struct Program {
    child: Child,
    output: Receiver<String>,
    errors: Receiver<String>,
}

impl Program {
    fn start(command: &mut Command) -> Self {
        let command = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let output = lines(child.stdout.take().expect("its output is piped"));
        let errors = lines(child.stderr.take().expect("its errors are piped"));
        Self {
            child,
            output,
            errors,
        }
    }

    fn quickstart(args: &[&str]) -> Self {
        Self::start(Command::new(binary()).args(args).env_remove("NO_COLOR"))
    }

    /// Waits for the end. Returns the status, the output and the errors.
    fn end(mut self, within: Duration) -> (ExitStatus, String, String) {
        let deadline = now() + within;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("it can be waited for") {
                break status;
            }
            assert!(now() < deadline, "still running after {within:?}");
            thread::sleep(Duration::from_millis(20));
        };
        let all = |lines: &Receiver<String>| lines.iter().map(|line| line + "\n").collect();
        (status, all(&self.output), all(&self.errors))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn lines(stream: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    receiver
}

/// Returns the example, built with the features of this test so that nothing is built twice.
fn binary() -> &'static PathBuf {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        let features = [
            (true, "axum,tokio"),
            (cfg!(feature = "serde"), "serde"),
            (cfg!(feature = "tonic"), "tonic"),
            (cfg!(feature = "tracing"), "tracing"),
            (cfg!(feature = "test-util"), "test-util"),
            (cfg!(feature = "tonic-tls"), "tonic-tls"),
            (cfg!(feature = "redis"), "redis"),
            (cfg!(feature = "redis-tls"), "redis-tls"),
            (cfg!(feature = "memcached"), "memcached"),
            (cfg!(feature = "retry"), "retry"),
            (cfg!(feature = "metrics"), "metrics"),
            (cfg!(feature = "introspect"), "introspect"),
            (cfg!(feature = "config"), "config"),
        ];
        let features: Vec<_> = features
            .iter()
            .filter(|(on, _)| *on)
            .map(|(_, name)| *name)
            .collect();
        let mut cargo = support::cargo(env!("CARGO_MANIFEST_DIR"));
        cargo.args([
            "build",
            "--quiet",
            "--message-format=json",
            "--example=quickstart",
        ]);
        cargo.arg(format!("--features={}", features.join(",")));
        let this = env::current_exe().expect("this test has a path");
        if this.components().any(|part| part.as_os_str() == "release") {
            cargo.arg("--release");
        }
        let (status, messages, errors) = Program::start(&mut cargo).end(Duration::from_secs(900));
        assert!(status.success(), "{errors}");
        let mut executables = messages.lines().filter_map(|line| {
            let message: serde_json::Value = serde_json::from_str(line).ok()?;
            let is_it = message["target"]["name"] == "quickstart";
            is_it.then(|| message["executable"].as_str().map(PathBuf::from))?
        });
        executables.next_back().expect("cargo names what it built")
    })
}

/// The example as a server on a free port.
struct Server {
    program: Program,
    address: SocketAddr,
}

impl Server {
    fn start(args: &[&str]) -> Self {
        let program = Program::quickstart(&[&["--listen", "127.0.0.1:0"], args].concat());
        let line = program
            .output
            .recv_timeout(SOON)
            .expect("it says where it listens");
        let address = line
            .strip_prefix("listening on http://")
            .expect("it says so first");
        Self {
            address: address.parse().expect("an address"),
            program,
        }
    }

    fn limiting(rule: &str) -> Self {
        Self::start(&["--rule", rule])
    }

    /// Sends a signal, by the `kill` of a shell: the standard library sends only `SIGKILL`.
    #[cfg(unix)]
    fn signal(&self, name: &str) {
        let pid = self.program.child.id().to_string();
        let sent = Command::new("sh")
            .args(["-c", r#"kill -s "$0" "$1""#, name, &pid])
            .status();
        assert!(sent.expect("a shell").success());
    }

    fn get(&self, path: &str) -> Answer {
        self.get_with(path, "")
    }

    fn get_with(&self, path: &str, lines: &str) -> Answer {
        get(self.address, path, lines)
    }

    fn admits_with(&self, lines: &str) -> bool {
        self.get_with("/", lines).is_admitted()
    }

    /// Sends requests until one is refused. Returns the number of admissions, and the `Retry-After`
    /// of the refusal.
    fn exhaust(&self) -> (u64, u64) {
        for admitted in 0..1000 {
            let answer = self.get("/");
            if !answer.is_admitted() {
                let wait = answer
                    .header("retry-after")
                    .expect("a refusal says when to retry");
                return (admitted, wait.parse().expect("whole seconds"));
            }
        }
        panic!("a thousand requests, and no refusal");
    }
}

/// Sends a request with additional header lines, each ending in a line break.
fn get(host: SocketAddr, path: &str, lines: &str) -> Answer {
    exchange(host, &format!("GET {path}"), lines, "")
}

/// Sends a request: its method and path, additional header lines, and its body.
fn exchange(host: SocketAddr, what: &str, lines: &str, body: &str) -> Answer {
    let mut stream = TcpStream::connect_timeout(&host, SOON).expect("it listens");
    stream.set_read_timeout(Some(SOON)).expect("a bounded wait");
    let length = body.len();
    let request = format!(
        "{what} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\ncontent-length: {length}\r\n{lines}\r\n{body}"
    );
    stream
        .write_all(request.as_bytes())
        .expect("it takes a request");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("it answers");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head and a body");
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    Answer {
        status: status.expect("a status"),
        head: head.to_ascii_lowercase(),
        body: body.to_owned(),
    }
}

struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn is_admitted(&self) -> bool {
        assert!(
            matches!(self.status, 200 | 429),
            "{}\n{}",
            self.head,
            self.body
        );
        self.status == 200
    }

    /// Returns the units that the decision left, by the `RateLimit` field.
    #[cfg(any(feature = "redis", feature = "memcached"))]
    fn remaining(&self) -> Option<u64> {
        let mut parts = self.header("ratelimit")?.split(';');
        parts.find_map(|part| part.strip_prefix("r="))?.parse().ok()
    }

    fn header(&self, name: &str) -> Option<&str> {
        let mut fields = self.head.lines().filter_map(|line| line.split_once(':'));
        fields
            .find(|(own, _)| *own == name)
            .map(|(_, value)| value.trim())
    }
}

#[test]
fn admits_at_most_the_burst_and_what_is_refilled() {
    for (rule, burst, amount, period, seconds) in [
        ("token-bucket 5/10s burst=5", 5, 5, 10, 5),
        ("token-bucket 2/1s burst=2", 2, 2, 1, 3),
    ] {
        let server = Server::limiting(rule);
        let start = now();
        let mut admitted = 0;
        while start.elapsed() < Duration::from_secs(seconds) {
            admitted += u128::from(server.get("/").is_admitted());
            thread::sleep(Duration::from_millis(20));
        }
        let most = burst + start.elapsed().as_nanos() * amount / (period * 1_000_000_000);
        assert!(
            (burst..=most).contains(&admitted),
            "{rule}: {admitted} of at most {most}"
        );
    }
}

#[test]
fn a_request_after_retry_after_is_admitted() {
    for (rule, rounds) in [
        ("token-bucket 2/1s burst=2", 4),
        ("token-bucket 5/10s burst=5", 1),
    ] {
        let server = Server::limiting(rule);
        for _ in 0..rounds {
            let (_, wait) = server.exhaust();
            assert!((1..=2).contains(&wait), "{rule}: {wait} s");
            thread::sleep(Duration::from_secs(wait));
            assert!(
                server.get("/").is_admitted(),
                "{rule}: refused after {wait} s"
            );
        }
    }
}

#[test]
fn clients_with_different_headers_do_not_influence_each_other() {
    let server = Server::start(&["--rule", "token-bucket 3/1h", "--key=header x-api-key"]);
    let admissions = |lines| (0..5).filter(|_| server.admits_with(lines)).count();
    assert_eq!(admissions("x-api-key: ann\r\n"), 3);
    assert_eq!(admissions("X-Api-Key: bob\r\n"), 3);
    assert_eq!(admissions("x-api-key: ann\r\n"), 0);
    assert_eq!(server.get("/").status, 400);
}

#[test]
fn clients_behind_a_trusted_proxy_do_not_influence_each_other() {
    let rule = ["--rule", "token-bucket 2/1h"];
    let trusting = |networks| Server::start(&[&rule[..], &["--key", networks]].concat());
    let admissions = |server: &Server, client: &str| {
        let line = format!("x-forwarded-for: {client}\r\n");
        (0..4).filter(|_| server.admits_with(&line)).count()
    };
    let server = trusting("forwarded-for 10.0.0.0/8 127.0.0.1");
    assert_eq!(
        ["192.0.2.1", "192.0.2.2", "6.6.6.6, 192.0.2.1"].map(|it| admissions(&server, it)),
        [2, 2, 0]
    );
    // This peer is not a trusted proxy, so its header is ignored.
    let server = trusting("forwarded-for 10.0.0.0/8");
    assert_eq!(
        ["192.0.2.1", "192.0.2.2"].map(|it| admissions(&server, it)),
        [2, 0]
    );
}

#[test]
fn everybody_shares_the_global_key() {
    let server = Server::start(&["--rule", "token-bucket 2/1h", "--key", "global"]);
    assert_eq!(server.exhaust().0, 2);
}

#[test]
fn decision_shows_the_limits_decision() {
    let server = Server::limiting("token-bucket 5/10s burst=5");
    let answer = server.get("/decision");
    let json: serde_json::Value = serde_json::from_str(&answer.body).expect("JSON");
    assert_eq!(json["admitted"], true);
    let limit = &json["limits"][0];
    assert_eq!(limit["policy"], "default");
    assert_eq!(limit["verdict"], "allow");
    assert_eq!(
        (&limit["limit"], &limit["remaining"]),
        (&5.into(), &4.into())
    );
    assert_eq!(
        (&limit["quota"], &limit["retry_after_seconds"]),
        (&"5/10s".into(), &0.0.into())
    );
    assert_eq!(server.get("/").body, "hello, 3 of 5 left\n");
}

#[test]
fn slow_is_bounded() {
    let server = Server::limiting("token-bucket 100/1s");
    let start = now();
    assert_eq!(server.get("/slow?ms=300").body, "slept 300 ms\n");
    assert!(start.elapsed() >= Duration::from_millis(300));
    for path in ["/slow?ms=10001", "/slow?ms=-1", "/slow?ms=abc", "/slow?ms="] {
        let answer = server.get(path);
        assert_eq!(answer.status, 400, "{path}");
        assert!(
            answer.body.starts_with("`ms` must be a whole number"),
            "{}",
            answer.body
        );
    }
}

#[test]
fn headers_have_the_chosen_format() {
    for (shape, present) in [
        ("draft", Some("ratelimit-policy")),
        ("draft-07", Some("ratelimit")),
        ("draft-06", Some("ratelimit-limit")),
        ("legacy", Some("x-ratelimit-limit")),
        ("legacy-delta", Some("x-ratelimit-reset")),
        ("none", None),
    ] {
        let server = Server::start(&["--rule", "token-bucket 1/1h", "--headers", shape]);
        for (status, retries) in [(200, false), (429, true)] {
            let answer = server.get("/");
            assert_eq!(answer.status, status);
            assert_eq!(answer.header("retry-after").is_some(), retries, "{shape}");
            match present {
                Some(name) => assert!(answer.header(name).is_some(), "{shape}: {}", answer.head),
                None => assert!(!answer.head.contains("ratelimit"), "{}", answer.head),
            }
        }
    }
}

#[test]
fn wrong_flags_are_errors_of_one_sentence() {
    for (args, part) in [
        (&["--rule", "token-bucket 5/10x"][..], "unknown unit `x`"),
        (&["--rule", "bucket 5/10s"], "unknown algorithm `bucket`"),
        (
            &["--rule=token-bucket 0/1s"],
            "the amount of the quota is 0: expected at least 1",
        ),
        (
            &["--rule=token-bucket 5/0s"],
            "column 16: the period of the quota is 0: expected at least 1 ns",
        ),
        (&["--rule"], "--rule needs a value"),
        (&["--key", "cookies"], "expected `peer-ip`, `forwarded-for`"),
        (
            &["--key", "header x api key"],
            "does not belong to a key here",
        ),
        (&["--key", "forwarded-for example.org"], "is not a network"),
        (&["--headers", "draft-99"], "draft-99"),
        (&["--listen", "localhost"], "expected an address and a port"),
        (
            &["--listen", "127.0.0.1:0", "--listen", "127.0.0.1:0"],
            "given twice",
        ),
        (&["--burst", "5"], "unknown flag `--burst`"),
        (&["--demo=yes"], "takes no value"),
        (&["--svg", "demo.svg"], "draws the demo"),
        (&["--store", "memcache"], "expected `memory` or a URL"),
        (
            &["--store", "http://127.0.0.1"],
            "`redis://127.0.0.1:6379` (`rediss://`, `redis-cluster://`, `redis-sentinel://`) or \
             `memcached://127.0.0.1:11211`",
        ),
        (
            &["--on-store-error=maybe"],
            "expected `open`, `closed` or `local`",
        ),
        (&["--store-timeout", "100"], "as in `100ms` or `2s`"),
        (&["--store-timeout=0ms"], "expected a time above zero"),
        (&["--nodes", "0"], "expected a whole number of servers"),
        (&["--remember-refusals=no"], "takes no value"),
        (
            &["--lease", "100ms"],
            "--lease needs a store that servers share, as in --store redis://",
        ),
        (
            &["--lease", "--nodes=2"],
            "name such a store, or take --lease out",
        ),
        (&["--lease=100"], "--lease \"100\": expected a time"),
        (&["--lease", "0s"], "--lease \"0s\": expected a time"),
        (&["--lease=2d"], "expected at most a day"),
        (&["--lease=1s", "--lease"], "given twice"),
    ] {
        let (status, output, errors) = Program::quickstart(args).end(SOON);
        assert_eq!(status.code(), Some(2), "{args:?}: {errors}");
        assert_eq!(output, "", "{args:?}");
        assert!(
            errors.starts_with("quickstart: ") && errors.contains(part),
            "{args:?}: {errors}"
        );
        assert_eq!(errors.lines().count(), 1, "{errors}");
    }
}

/// Asserts that no line is longer than 80 columns.
fn fits_a_terminal(text: &str) {
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "too long: {line}");
    }
}

#[test]
fn help_names_every_flag() {
    let (status, output, _) = Program::quickstart(&["--help"]).end(SOON);
    assert!(status.success());
    for flag in [
        "--listen",
        "--rule",
        "--key",
        "--headers",
        "--store",
        "--on-store-error",
        "--nodes",
        "--store-timeout",
        "--lease",
        "--remember-refusals",
        "--demo",
        "legacy-delta",
    ] {
        assert!(output.contains(flag), "{flag}");
    }
    fits_a_terminal(&output);
}

#[test]
fn an_address_in_use_is_an_error_of_one_sentence() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("its address").to_string();
    let (status, _, errors) = Program::quickstart(&["--listen", &address]).end(SOON);
    assert_eq!(status.code(), Some(1));
    assert!(
        errors.contains(&address) && errors.contains("in use already"),
        "{errors}"
    );
}

#[cfg(unix)]
#[test]
fn interrupt_lets_requests_finish() {
    let server = Server::limiting("token-bucket 5/10s");
    thread::scope(|scope| {
        let address = server.address;
        let slow = scope.spawn(move || get(address, "/slow?ms=1500", ""));
        thread::sleep(Duration::from_millis(500));
        server.signal("INT");
        assert_eq!(slow.join().expect("no panic").body, "slept 1500 ms\n");
    });
    let (status, output, _) = server.program.end(SOON);
    assert!(status.success());
    assert!(output.ends_with("stopped\n"), "{output}");
}

#[test]
fn demo_shows_that_the_rule_keeps_its_promise() {
    let svg = std::env::temp_dir().join(format!("tollgate-{}-demo.svg", std::process::id()));
    let path = svg.to_str().expect("a plain path");
    let demo = ["--demo", "--svg", path];
    let (status, output, errors) = Program::quickstart(&demo).end(Duration::from_secs(60));
    assert!(status.success(), "{errors}\n{output}");
    for part in [
        "5 admitted     1 refused",
        "The first refusal, after 5 admitted",
        "HTTP/1.1 429 Too Many Requests",
        "retry-after: ",
        "Exactly that much later: admitted.",
        "The rule kept its promise",
    ] {
        assert!(output.contains(part), "no `{part}` in\n{output}");
    }
    // A column for each second has as many requests as its line.
    let picture = fs::read_to_string(&svg).expect("the picture");
    fs::remove_file(svg).expect("the picture");
    assert!(picture.starts_with("<svg") && picture.contains(">token-bucket 5/10s</text>"));
    let columns = |class: &str| {
        let of_class = format!(r#"<rect class="{class}" x=""#);
        let heights = picture.lines().filter(|line| line.starts_with(&of_class));
        let height = |line: &str| {
            let after = line.split(r#" height=""#).nth(1)?;
            after.split('"').next()?.parse::<u64>().ok()
        };
        // The first is that of the legend.
        heights
            .skip(1)
            .map(|line| height(line).expect("a height"))
            .collect::<Vec<_>>()
    };
    let rows = output
        .lines()
        .filter(|line| line.contains(" admitted ") && line.contains(" s  "));
    let counts: Vec<_> = rows
        .map(|line| {
            let words: Vec<_> = line.split_whitespace().rev().collect();
            (
                words[3].parse::<u64>().unwrap(),
                words[1].parse::<u64>().unwrap(),
            )
        })
        .collect();
    assert_eq!(counts.len(), 10);
    let scaled = |count: u64| count * 144 / 6;
    let expected: Vec<_> = counts
        .iter()
        .map(|(admitted, _)| scaled(*admitted))
        .collect();
    assert_eq!(columns("admitted"), expected);
    let expected: Vec<_> = counts.iter().map(|(_, refused)| scaled(*refused)).collect();
    assert_eq!(columns("refused"), expected);
    assert!(
        !output.contains('\x1b') && !output.contains('\r'),
        "colours in a pipe\n{output}"
    );
    fits_a_terminal(&output);
}

#[test]
fn demo_works_with_other_rules_and_keys() {
    let demos = [
        ["token-bucket 20/1s burst=40", "header x-api-key", "legacy"],
        [
            "token-bucket 3/1s & token-bucket 20/1m",
            "forwarded-for 127.0.0.0/8",
            "none",
        ],
        ["token-bucket 1/1h", "global", "draft-07"],
        ["token-bucket 5/1s burst=9 keep-free=4", "peer-ip", "draft"],
        ["fixed-window 5/2s", "peer-ip", "draft"],
        [
            "sliding-window 10/2s slices=4 & sliding-log 30/5s",
            "peer-ip",
            "draft",
        ],
        ["cascade 2/1s > 1/1s burst=3", "peer-ip", "draft"],
        ["three-color 2/1s peak=4/1s", "peer-ip", "draft"],
        ["warm-up 20/1s over=3s", "peer-ip", "draft"],
    ];
    let demos = demos.map(|[rule, key, headers]| {
        Program::quickstart(&["--demo", "--rule", rule, "--key", key, "--headers", headers])
    });
    for demo in demos {
        let (status, output, errors) = demo.end(Duration::from_secs(90));
        assert!(status.success(), "{errors}\n{output}");
        assert!(output.contains("retry-after: "), "{output}");
        assert!(output.contains("The rule kept its promise"), "{output}");
        if output.contains("keep-free=4") {
            assert!(output.contains("5 at once and 5/s"), "{output}");
        }
    }
}

#[test]
fn rules_that_delay_are_served_but_not_demonstrated() {
    for rule in [
        "in-flight 2",
        "leaky-bucket 10/1s queue=5",
        "warm-up-spaced 10/1s over=2s & fixed-window 5/1s",
    ] {
        let (status, _, errors) = Program::quickstart(&["--demo", "--rule", rule]).end(SOON);
        assert_eq!(status.code(), Some(1), "{errors}");
        assert!(errors.contains("send many at once"), "{errors}");
    }
    let server = Server::limiting("leaky-bucket 10/1s queue=5");
    let address = server.address;
    let begin = now();
    let answers: Vec<_> = thread::scope(|scope| {
        let asks: Vec<_> = (0..4)
            .map(|_| scope.spawn(move || get(address, "/", "").is_admitted()))
            .collect();
        asks.into_iter()
            .map(|ask| ask.join().expect("no panic"))
            .collect()
    });
    assert_eq!(answers, [true; 4]);
    assert!(
        now() - begin >= Duration::from_millis(299),
        "four departures lie three intervals apart"
    );
}

#[cfg(not(all(feature = "redis", feature = "memcached")))]
#[test]
fn a_store_that_was_not_built_is_an_error_of_one_sentence() {
    for (scheme, built) in [
        ("redis", cfg!(feature = "redis")),
        ("memcached", cfg!(feature = "memcached")),
    ] {
        if built {
            continue;
        }
        let store = format!("{scheme}://127.0.0.1");
        let (status, _, errors) = Program::quickstart(&["--store", &store]).end(SOON);
        assert_eq!(status.code(), Some(2));
        let features = format!("build it with `--features axum,{scheme}`");
        assert!(errors.contains(&features), "{errors}");
    }
}
