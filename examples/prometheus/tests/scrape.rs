//! Starts the program, sends a known mix of requests, and compares what Prometheus would scrape.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    process::{Child, Command, Stdio},
    time::Duration,
};

/// The program on a free port; killed when it is dropped.
struct Server {
    child: Child,
    address: SocketAddr,
}

impl Server {
    fn start(args: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_tollgate-prometheus"))
            .args(["--listen", "127.0.0.1:0"])
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().expect("its output is piped"));
        output.read_line(&mut line).expect("it writes a line");
        let address = line.trim().strip_prefix("listening on ");
        let address = address.and_then(|address| address.parse().ok());
        let address = address.unwrap_or_else(|| panic!("no address in {line:?}"));
        Self { child, address }
    }

    /// Sends a request; returns the status and the body.
    fn get(&self, path: &str, key: Option<&str>) -> (u16, String) {
        let mut stream = TcpStream::connect(self.address).expect("the server listens");
        let timeout = Some(Duration::from_secs(20));
        stream.set_read_timeout(timeout).expect("a timeout");
        let key = key.map_or(String::new(), |key| format!("x-api-key: {key}\r\n"));
        let request = format!("GET {path} HTTP/1.0\r\nhost: localhost\r\n{key}\r\n");
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut response = String::new();
        stream.read_to_string(&mut response).expect("it answers");
        let (head, body) = response.split_once("\r\n\r\n").expect("a head and a body");
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok());
        (status.expect("a status"), body.to_owned())
    }

    fn scrape(&self) -> Scrape {
        let (status, text) = self.get("/metrics", None);
        assert_eq!(status, 200);
        Scrape::parse(&text)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The text format of Prometheus: values by name and labels, types and help texts by name.
#[derive(Debug, Default)]
struct Scrape {
    values: BTreeMap<String, f64>,
    types: BTreeMap<String, String>,
    helps: BTreeMap<String, String>,
}

impl Scrape {
    fn parse(text: &str) -> Self {
        let mut scrape = Self::default();
        for line in text.lines().filter(|line| !line.is_empty()) {
            let comment = |prefix| {
                let (name, value) = line.strip_prefix(prefix)?.split_once(' ')?;
                Some((name.to_owned(), value.to_owned()))
            };
            if let Some((name, kind)) = comment("# TYPE ") {
                scrape.types.insert(name, kind);
            } else if let Some((name, help)) = comment("# HELP ") {
                scrape.helps.insert(name, help);
            } else {
                let (name, value) = line.rsplit_once(' ').expect("a name and a value");
                let value = value
                    .parse()
                    .unwrap_or_else(|_| panic!("no number: {line}"));
                let before = scrape.values.insert(name.to_owned(), value);
                assert_eq!(before, None, "{name} twice");
            }
        }
        scrape
    }
}

#[test]
fn a_scrape_shows_exactly_what_was_sent() {
    let rules = [
        "--client",
        "token-bucket 3/1h",
        "--total",
        "token-bucket 8/1h",
    ];
    let server = Server::start(&rules);
    let send = |path: &str, key: Option<&str>, statuses: &[u16]| {
        for status in statuses {
            assert_eq!(server.get(path, key).0, *status, "{path} {key:?}");
        }
    };
    // Each client may send 3, and all together 8.
    send("/", Some("alice"), &[200, 200, 200, 429, 429]);
    send("/", Some("bob"), &[200, 200, 200, 429]);
    // `carol` has one left, but all clients together have none.
    send("/", Some("carol"), &[200, 200, 429, 429, 429]);
    // `alice` is over both limits.
    send("/", Some("alice"), &[429]);
    send("/health", None, &[200, 200, 200, 200]);
    send("/", None, &[400, 400]);

    let expected = [
        (
            "tollgate_requests_total{policy=\"client\",outcome=\"admitted\"}",
            8.0,
        ),
        (
            "tollgate_requests_total{policy=\"client\",outcome=\"delayed\"}",
            0.0,
        ),
        // Two and one, and once beside the other limit.
        (
            "tollgate_requests_total{policy=\"client\",outcome=\"refused\"}",
            4.0,
        ),
        (
            "tollgate_requests_total{policy=\"client\",outcome=\"undecided_admitted\"}",
            0.0,
        ),
        (
            "tollgate_requests_total{policy=\"client\",outcome=\"undecided_refused\"}",
            0.0,
        ),
        (
            "tollgate_requests_total{policy=\"total\",outcome=\"admitted\"}",
            8.0,
        ),
        (
            "tollgate_requests_total{policy=\"total\",outcome=\"delayed\"}",
            0.0,
        ),
        (
            "tollgate_requests_total{policy=\"total\",outcome=\"refused\"}",
            4.0,
        ),
        (
            "tollgate_requests_total{policy=\"total\",outcome=\"undecided_admitted\"}",
            0.0,
        ),
        (
            "tollgate_requests_total{policy=\"total\",outcome=\"undecided_refused\"}",
            0.0,
        ),
        ("tollgate_exempt_total", 4.0),
        ("tollgate_missing_keys_total{fault=\"client\"}", 2.0),
        ("tollgate_layer_cancelled_total{layer=\"api\"}", 0.0),
        ("tollgate_layer_collisions{layer=\"api\"}", 0.0),
        ("tollgate_layer_misconfigured_total{layer=\"api\"}", 0.0),
        ("tollgate_layer_unsettled_total{layer=\"api\"}", 0.0),
        // Three clients, and one key of all.
        ("tollgate_local_keys{store=\"memory\"}", 4.0),
        ("tollgate_local_waiting{store=\"memory\"}", 0.0),
        ("tollgate_local_inserted_total{store=\"memory\"}", 4.0),
        ("tollgate_local_forgotten_total{store=\"memory\"}", 0.0),
        ("tollgate_local_returned_total{store=\"memory\"}", 0.0),
        ("tollgate_local_evicted_total{store=\"memory\"}", 0.0),
        ("tollgate_local_held_back_total{store=\"memory\"}", 0.0),
        ("tollgate_local_turned_away_total{store=\"memory\"}", 0.0),
        ("tollgate_local_let_through_total{store=\"memory\"}", 0.0),
        ("tollgate_local_unsettled_total{store=\"memory\"}", 0.0),
    ];
    let mut expected: BTreeMap<String, f64> = expected
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
    let mut scrape = server.scrape();
    let capacity = "tollgate_local_capacity{store=\"memory\"}";
    let capacity = scrape.values.remove(capacity);
    assert!(capacity.is_some_and(|keys| keys >= 1000.0), "{capacity:?}");
    assert_eq!(scrape.values, expected);

    // A second scrape shows what has happened since, and the store as of now.
    send("/", Some("dave"), &[429]);
    send("/health", None, &[200]);
    let refused = "tollgate_requests_total{policy=\"total\",outcome=\"refused\"}";
    expected.insert(refused.to_owned(), 5.0);
    expected.insert("tollgate_exempt_total".to_owned(), 5.0);
    let mut scrape = server.scrape();
    scrape
        .values
        .retain(|name, _| !name.starts_with("tollgate_local_"));
    expected.retain(|name, _| !name.starts_with("tollgate_local_"));
    assert_eq!(scrape.values, expected);
}

#[test]
fn metrics_have_types_and_descriptions() {
    let server = Server::start(&[]);
    assert_eq!(server.get("/", Some("alice")).0, 200);
    let scrape = server.scrape();
    let of = |kind: &str| -> Vec<_> {
        let names = scrape.types.iter().filter(|(_, of)| *of == kind);
        names.map(|(name, _)| name.as_str()).collect()
    };
    assert_eq!(
        of("gauge"),
        [
            "tollgate_layer_collisions",
            "tollgate_local_capacity",
            "tollgate_local_keys",
            "tollgate_local_waiting"
        ]
    );
    assert_eq!(of("counter").len(), 12, "{:?}", of("counter"));
    for name in scrape.types.keys() {
        assert!(scrape.helps.contains_key(name), "{name}");
    }
}
