//! The store in memcached, for both classes of rules: shared, lost, silent, and restarted.

use std::{
    net::SocketAddr,
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use super::{
    Program, SOON, Server, alone, get, now,
    servers::{Memcached, slack_since, wait_until},
};

const KEY: &str = "--key=header x-api-key";

fn url(memcached: &Memcached) -> String {
    format!("memcached://{}", memcached.address())
}

fn start(memcached: &Memcached, rule: &str, more: &[&str]) -> Server {
    let store = url(memcached);
    Server::start(&[&["--rule", rule, "--store", &store, KEY], more].concat())
}

/// A window of an hour that has just started.
#[expect(clippy::disallowed_methods, reason = "windows are the calendar's")]
fn window(limit: u64) -> String {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH);
    let offset = unix.expect("a date").as_secs() % 3600;
    format!("fixed-window {limit}/1h offset={offset}s")
}

fn bucket(limit: u64) -> String {
    format!("token-bucket {limit}/1h")
}

fn statuses(server: &Server, client: &str, calls: usize) -> Vec<u16> {
    statuses_of(server.address, client, calls)
}

fn statuses_of(server: SocketAddr, client: &str, calls: usize) -> Vec<u16> {
    let line = format!("x-api-key: {client}\r\n");
    let status = |_| get(server, "/", &line).status;
    (0..calls).map(status).collect()
}

/// Returns the names of all keys as the server writes them: `@` is `%40`.
fn names(memcached: &Memcached) -> Vec<String> {
    let dump = memcached.command("lru_crawler metadump all");
    let names = dump.lines().filter_map(|line| line.strip_prefix("key="));
    names
        .map(|name| name.split(' ').next().unwrap_or(name).to_owned())
        .collect()
}

/// Sends requests of new clients until one is decided by the store. While the store is down, none
/// is.
fn until_decided(server: &Server) {
    let mut client = 0;
    wait_until("a decision of the store", SOON, || {
        client += 1;
        let answer = server.get_with("/", &format!("x-api-key: probe-{client}\r\n"));
        let field = answer.header("ratelimit").map(drop);
        field.ok_or_else(|| format!("{} for client {client}", answer.status))
    });
}

/// Returns the number of admissions of calls from four threads to each of two processes.
fn admitted_by_both(memcached: &Memcached, rule: &str) -> usize {
    // A call that was not decided in time must not pass. It should not happen.
    let patient = ["--on-store-error=closed", "--store-timeout=10s"];
    let both = [(); 2].map(|()| start(memcached, rule, &patient));
    let admitted = |server| {
        let statuses = statuses_of(server, "ann", 20);
        assert!(
            statuses.iter().all(|status| [200, 429].contains(status)),
            "{statuses:?}"
        );
        statuses.iter().filter(|status| **status == 200).count()
    };
    thread::scope(|scope| {
        let threads = [0, 1, 0, 1, 0, 1, 0, 1].map(|at: usize| {
            let server = both[at].address;
            scope.spawn(move || admitted(server))
        });
        let admitted = threads.map(|thread| thread.join().expect("no panic"));
        admitted.iter().sum()
    })
}

#[test]
fn two_processes_share_a_bucket() {
    let memcached = Memcached::start();
    let start = now();
    let admitted = admitted_by_both(&memcached, "token-bucket 10/1s burst=50") as u128;
    let most = 50 + 10 * start.elapsed().as_nanos() / 1_000_000_000;
    assert!(
        (50..=most).contains(&admitted),
        "{admitted} of at most {most}"
    );
    let names = names(&memcached);
    assert!(
        !names.is_empty() && names.iter().all(|name| !name.contains("%40")),
        "{names:?}"
    );
}

#[test]
fn two_processes_share_a_window() {
    let memcached = Memcached::start();
    assert_eq!(admitted_by_both(&memcached, &window(50)), 50);
    // It was counted: the names of the counters contain the start of their windows.
    let names = names(&memcached);
    assert!(
        !names.is_empty() && names.iter().all(|name| name.contains("%40")),
        "{names:?}"
    );
}

#[test]
fn two_processes_share_a_sliding_window() {
    let memcached = Memcached::start();
    let rule = "sliding-window 50/1h slices=4";
    let both = [(); 2].map(|()| start(&memcached, rule, &["--on-store-error=closed"]));
    let [one, other] = both.each_ref().map(|server| statuses(server, "ann", 25));
    assert_eq!([one, other], [[200; 25]; 2]);
    assert_eq!(
        both.each_ref().map(|server| statuses(server, "ann", 1)),
        [[429], [429]]
    );
}

#[test]
fn a_lost_store_opens_or_closes_and_comes_back_empty() {
    for rule in [bucket(4), window(4)] {
        let memcached = Memcached::start();
        let patient = |way| {
            let more = ["--store-timeout=10s", "--on-store-error", way];
            start(&memcached, &rule, &more)
        };
        let (open, closed) = (patient("open"), patient("closed"));
        assert_eq!(statuses(&open, "ann", 2), [200; 2]);
        assert_eq!(statuses(&closed, "ann", 3), [200, 200, 429]);
        memcached.kill();
        // More calls than open the circuit breaker.
        assert_eq!(statuses(&open, "ann", 20), [200; 20], "{rule}");
        assert_eq!(statuses(&closed, "ann", 20), [503; 20], "{rule}");
        let passed = open.get_with("/", "x-api-key: ann\r\n");
        assert!(!passed.head.contains("ratelimit"), "{}", passed.head);
        memcached.restart();
        for server in [&open, &closed] {
            until_decided(server);
        }
        // After a restart both processes start over together.
        assert_eq!(statuses(&closed, "ann", 3), [200; 3], "{rule}");
        assert_eq!(statuses(&open, "ann", 2), [200, 429], "{rule}");
    }
}

#[test]
fn a_store_that_is_down_at_the_start_is_used_once_it_runs() {
    let memcached = Memcached::start();
    for rule in [bucket(4), window(4)] {
        memcached.kill();
        let more = ["--store-timeout=10s", "--on-store-error=open"];
        let [one, other] = [(); 2].map(|()| start(&memcached, &rule, &more));
        let warning = one.program.errors.recv_timeout(SOON).expect("a warning");
        assert!(warning.contains("starting without it"), "{warning}");
        assert_eq!(statuses(&one, "ann", 20), [200; 20], "{rule}");
        memcached.restart();
        for server in [&one, &other] {
            until_decided(server);
        }
        assert_eq!(statuses(&one, "ann", 2), [200; 2], "{rule}");
        assert_eq!(statuses(&other, "ann", 3), [200, 200, 429], "{rule}");
    }
}

#[test]
fn a_lost_store_is_replaced_by_a_share_of_the_bucket() {
    let memcached = Memcached::start();
    let more = ["--store-timeout=10s", "--on-store-error=local", "--nodes=2"];
    let server = start(&memcached, &bucket(4), &more);
    assert_eq!(statuses(&server, "ann", 1), [200]);
    memcached.kill();
    assert_eq!(statuses(&server, "ann", 4), [200, 200, 429, 429]);
    memcached.restart();
    until_decided(&server);
    // The bucket starts empty of debts, and does not learn of admissions meanwhile.
    assert_eq!(statuses(&server, "ann", 5), [200, 200, 200, 200, 429]);
}

#[test]
fn calls_to_a_silent_store_end_at_the_timeout() {
    const DEADLINE: Duration = Duration::from_millis(150);
    const CALLS: u32 = 12;
    let _alone = alone();
    let memcached = Memcached::start();
    let patient = |rule: &str, way| {
        let more = ["--store-timeout=150ms", "--on-store-error", way];
        start(&memcached, rule, &more)
    };
    let ways = [
        (patient(&bucket(60), "open"), 200),
        (patient(&bucket(60), "closed"), 503),
        (patient(&bucket(60), "local"), 200),
        (patient(&window(60), "open"), 200),
        (patient(&window(60), "closed"), 503),
    ];
    for (server, _) in &ways {
        until_decided(server);
    }
    memcached.pause();
    for (server, expected) in &ways {
        let (mut waited, mut late) = (0, Vec::new());
        for _ in 0..CALLS {
            let start = now();
            let status = statuses(server, "ann", 1);
            let (took, slack) = (start.elapsed(), slack_since(start));
            assert_eq!(status, [*expected]);
            if took > DEADLINE + slack {
                late.push((took, slack));
            }
            // Compare-and-swap has a slightly shorter deadline, to distinguish a lost race from
            // silence.
            waited += u32::from(took >= DEADLINE * 4 / 5);
        }
        // A call wakes several processes, each of which may find the machine busy once.
        assert!(late.len() <= 1, "time and slack: {late:?}");
        // Several timeouts open the circuit breaker, and most other calls do not wait.
        assert!((1..CALLS).contains(&waited), "{waited}");
    }
    memcached.resume();
    for (server, _) in &ways {
        until_decided(server);
    }
}

#[test]
fn remembered_refusals_hold_while_the_store_is_gone() {
    for rule in [bucket(2), window(2)] {
        let memcached = Memcached::start();
        let more = ["--on-store-error=closed", "--remember-refusals"];
        let server = start(&memcached, &rule, &more);
        assert_eq!(statuses(&server, "ann", 3), [200, 200, 429], "{rule}");
        memcached.kill();
        assert_eq!(statuses(&server, "ann", 1), [429], "{rule}");
        assert_eq!(statuses(&server, "bob", 1), [503], "{rule}");
    }
}

#[test]
fn a_store_that_cannot_be_used_is_told_in_a_sentence() {
    let memcached = Memcached::start();
    let store = url(&memcached);
    let ends = |args: &[&str], parts: &[&str]| {
        let (status, _, errors) = Program::quickstart(args).end(SOON);
        assert_eq!(status.code(), Some(1), "{args:?}: {errors}");
        assert_eq!(errors.lines().count(), 1, "{errors}");
        for part in parts {
            assert!(errors.contains(part), "{args:?}: {errors}");
        }
    };
    let local = ["--store", &store, "--on-store-error=local"];
    for rule in ["leaky-bucket 5/1h", "cascade 5/1h > 5/1h"] {
        let args = [&local[..], &["--rule", rule]].concat();
        let no_share = format!("`{rule}` cannot be divided among nodes");
        ends(&args, &["--on-store-error local", &no_share, "`closed`"]);
    }
    let nodes = ["--rule", "fixed-window 5/1h", "--nodes=6"];
    let whole = "a share of 1/6 of a limit of 5";
    ends(&[&local[..], &nodes].concat(), &["--nodes 6", whole]);
    let both = "memcached://127.0.0.1:1,127.0.0.1:2";
    ends(&["--store", both], &["names several servers"]);
    memcached.kill();
    let parts = [&store, "cannot be reached", "check that it runs there"];
    ends(&["--store", &store], &parts);
}
