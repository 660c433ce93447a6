//! A store on another machine: shared, lost, silent, and restarted.

use std::time::Duration;

use super::{Program, SOON, Server, alone, now, servers};

/// Returns the arguments of a server with its store at `url`, and `more` arguments.
fn args<'a>(url: &'a str, rule: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["--rule", rule, "--store", url], more].concat()
}

/// Sends requests of new clients until the store contains one of them, which outlasts the pauses of
/// the circuit breaker.
fn until_asked(redis: &servers::Redis, server: &Server) {
    let before = redis.keys().len();
    let mut client = 0;
    servers::wait_until("a client that the store remembers", SOON, || {
        client += 1;
        server.get_with("/", &format!("x-api-key: probe-{client}\r\n"));
        match redis.keys().len() {
            now if now > before => Ok(()),
            _ => Err(format!("none of {client}")),
        }
    });
}

#[test]
fn two_processes_share_one_limit() {
    let redis = servers::Redis::start();
    let url = redis.url();
    let args = args(&url, "token-bucket 7/1h", &["--key=header x-api-key"]);
    let [one, other] = [(); 2].map(|()| Server::start(&args));
    let admissions = |server: &Server, client: &str, calls| {
        let line = format!("x-api-key: {client}\r\n");
        (0..calls).filter(|_| server.admits_with(&line)).count()
    };
    assert_eq!(admissions(&one, "ann", 4), 4);
    assert_eq!(admissions(&other, "ann", 5), 3);
    assert_eq!(admissions(&one, "ann", 5), 0);
    assert_eq!(admissions(&other, "bob", 9), 7);
}

#[test]
fn a_lost_store_opens_closes_or_is_replaced_as_configured() {
    let redis = servers::Redis::start();
    let url = redis.url();
    // Long enough that a slow machine never triggers a fallback decision.
    let fixed = [
        "--key=header x-api-key",
        "--store-timeout=10s",
        "--on-store-error",
    ];
    let start = |more: &[&str]| {
        let way = args(&url, "token-bucket 4/1h", &fixed);
        Server::start(&[&way, more].concat())
    };
    let (open, closed) = (start(&["open"]), start(&["closed"]));
    let local = start(&["local", "--nodes", "2"]);
    let alone = start(&["local"]);
    for server in [&open, &closed, &local, &alone] {
        assert_eq!(server.get_with("/", "x-api-key: ann\r\n").status, 200);
    }
    // The four servers have spent it together.
    assert_eq!(closed.get_with("/", "x-api-key: ann\r\n").status, 429);
    redis.kill();
    let statuses = |server: &Server, client: &str, calls| -> Vec<_> {
        let line = format!("x-api-key: {client}\r\n");
        (0..calls)
            .map(|_| server.get_with("/", &line).status)
            .collect()
    };
    // More calls than open the circuit breaker.
    assert_eq!(statuses(&open, "ann", 20), [200; 20]);
    assert_eq!(statuses(&closed, "ann", 20), [503; 20]);
    // The limit is unknown, so no fields are sent.
    let passed = open.get_with("/", "x-api-key: ann\r\n");
    assert!(!passed.head.contains("ratelimit"), "{}", passed.head);
    // Half of four for each of two servers, all of it for a single one.
    assert_eq!(statuses(&local, "ann", 4), [200, 200, 429, 429]);
    assert_eq!(statuses(&local, "bob", 3), [200, 200, 429]);
    assert_eq!(statuses(&alone, "cid", 6), [200, 200, 200, 200, 429, 429]);
    redis.restart();
    for server in [&open, &closed, &local, &alone] {
        until_asked(&redis, server);
    }
    // It starts empty of debts, and does not learn of admissions meanwhile.
    assert_eq!(statuses(&closed, "dan", 5), [200, 200, 200, 200, 429]);
    assert_eq!(statuses(&local, "bob", 3), [200, 200, 200]);
    assert_eq!(statuses(&closed, "bob", 2), [200, 429]);
    assert_eq!(statuses(&alone, "cid", 5), [200, 200, 200, 200, 429]);
    assert_eq!(statuses(&closed, "cid", 1), [429]);
}

#[test]
fn a_store_that_is_down_at_the_start_is_used_once_it_runs() {
    let redis = servers::Redis::start();
    let url = redis.url();
    let rule = "token-bucket 4/1h";
    redis.kill();
    let fixed = ["--key=header x-api-key", "--store-timeout=10s"];
    let start = |more: &[&str]| Server::start(&args(&url, rule, &[&fixed, more].concat()));
    let open = start(&["--on-store-error=open"]);
    let local = start(&["--on-store-error=local", "--nodes=2"]);
    for server in [&open, &local] {
        let warning = server.program.errors.recv_timeout(SOON).expect("a warning");
        for part in [&url, "cannot be reached", "starting without it"] {
            assert!(warning.contains(part), "{warning}");
        }
    }
    let statuses = |server: &Server, client: &str, calls| -> Vec<_> {
        let line = format!("x-api-key: {client}\r\n");
        let status = |_| server.get_with("/", &line).status;
        (0..calls).map(status).collect()
    };
    // More calls than open the circuit breaker.
    assert_eq!(statuses(&open, "ann", 20), [200; 20]);
    assert_eq!(statuses(&local, "ann", 4), [200, 200, 429, 429]);
    redis.restart();
    for server in [&open, &local] {
        until_asked(&redis, server);
    }
    assert_eq!(statuses(&open, "bob", 2), [200; 2]);
    assert_eq!(statuses(&local, "bob", 3), [200, 200, 429]);
    assert_eq!(statuses(&open, "bob", 1), [429]);
}

#[test]
fn calls_to_a_silent_store_end_at_the_timeout() {
    const DEADLINE: Duration = Duration::from_millis(150);
    const CALLS: u32 = 12;
    let _alone = alone();
    let redis = servers::Redis::start();
    let url = redis.url();
    let start = |way| {
        let more = [
            "--key=header x-api-key",
            "--store-timeout",
            "150ms",
            "--on-store-error",
            way,
        ];
        Server::start(&args(&url, "token-bucket 60/1h", &more))
    };
    let ways = ["open", "closed", "local"].map(start);
    let timed = |server: &Server| {
        let start = now();
        let status = server.get_with("/", "x-api-key: ann\r\n").status;
        (status, start.elapsed(), servers::slack_since(start))
    };
    for server in &ways {
        assert_eq!(timed(server).0, 200);
    }
    redis.pause();
    for (server, expected) in ways.iter().zip([200, 503, 200]) {
        let (mut waited, mut late) = (0, Vec::new());
        for _ in 0..CALLS {
            let (status, took, slack) = timed(server);
            assert_eq!(status, expected);
            if took > DEADLINE + slack {
                late.push((took, slack));
            }
            waited += u32::from(took >= DEADLINE);
        }
        // A call wakes several processes, each of which may find the machine busy once.
        assert!(late.len() <= 1, "time and slack: {late:?}");
        // Several timeouts open the circuit breaker, and most other calls do not wait.
        assert!((1..CALLS).contains(&waited), "{waited}");
    }
    redis.resume();
    for server in &ways {
        until_asked(&redis, server);
    }
}

#[test]
fn remembered_refusals_hold_while_the_store_is_gone() {
    let redis = servers::Redis::start();
    let url = redis.url();
    let more = ["--on-store-error=closed", "--remember-refusals"];
    let server = Server::start(&args(&url, "token-bucket 2/1h", &more));
    assert_eq!(server.exhaust().0, 2);
    redis.kill();
    assert_eq!(server.get("/").status, 429);
}

#[test]
fn an_unusable_store_is_an_error_of_one_sentence() {
    let redis = servers::Redis::start();
    let url = redis.url();
    let ends = |args: &[&str], parts: &[&str]| {
        let (status, _, errors) = Program::quickstart(args).end(SOON);
        assert_eq!(status.code(), Some(1), "{args:?}: {errors}");
        for part in parts {
            assert!(errors.contains(part), "{args:?}: {errors}");
        }
        errors
    };
    let burst = "token-bucket 1/86400000000001ns burst=999";
    ends(&["--store", &url, "--rule", burst], &["2^53"]);
    let local = ["--store", &url, "--on-store-error=local"];
    // A burst of five cannot be divided among six.
    ends(&[&local[..], &["--nodes=6"]].concat(), &["--nodes 6"]);
    let other = ["--rule", "leaky-bucket 5/1h"];
    let parts = ["--on-store-error local", "cannot be divided among nodes"];
    ends(&[&local[..], &other].concat(), &parts);
    // A wrong password is an error also if the program could start without a store.
    let secret = url.replace("redis://", "redis://me:p4ss@");
    let of_cluster = secret.replace("redis://", "redis-cluster://");
    let open = "--on-store-error=open";
    for wrong in [&secret, &of_cluster] {
        let errors = ends(
            &["--store", wrong, open],
            &["user and password into the URL"],
        );
        assert!(!errors.contains("p4ss"), "{errors}");
    }
    redis.kill();
    ends(&["--store", &url, "--rule", burst, open], &["2^53"]);
    for way in [&[][..], &["--on-store-error=closed"]] {
        let parts = [&url, "cannot be reached", "--on-store-error open or local"];
        let errors = ends(&[&["--store", &secret], way].concat(), &parts);
        assert!(!errors.contains("p4ss"), "{errors}");
    }
    for (scheme, is_built) in [
        ("redis-sentinel", true),
        ("rediss-sentinel", cfg!(feature = "redis-tls")),
    ] {
        let store = format!("{}/mymaster", url.replace("redis", scheme));
        let expected = ["feature `redis-tls`", "cannot be reached"][usize::from(is_built)];
        ends(&["--store", &store], &[expected]);
    }
}
