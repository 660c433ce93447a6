//! Servers under load: a single one, and two behind one limit.

use std::{
    net::SocketAddr,
    process::Command,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
    time::Duration,
};

use super::{Program, SOON, Server, alone, get, now, servers};

const SECONDS: u64 = 5;
const RATE: u64 = 200;
const BURST: u64 = 300;
/// The connections to each server.
const CONNECTIONS: u64 = 4;

/// The requests to one server, and its admissions.
struct Load {
    requests: u64,
    admitted: u64,
}

/// Drives all servers concurrently, for [`SECONDS`].
fn drive(servers: &[Server]) -> Vec<Load> {
    let has_wrk = Command::new("wrk").arg("--version").output().is_ok();
    servers::required("wrk", has_wrk);
    let by = if has_wrk { by_wrk } else { by_threads };
    thread::scope(|scope| {
        let drive = |server: &Server| {
            let address = server.address;
            scope.spawn(move || by(address))
        };
        let loads: Vec<_> = servers.iter().map(drive).collect();
        let loads = loads.into_iter();
        loads.map(|load| load.join().expect("no panic")).collect()
    })
}

/// Uses wrk, which reports the number of responses and how many of them are errors.
fn by_wrk(address: SocketAddr) -> Load {
    let (seconds, connections) = (format!("{SECONDS}s"), CONNECTIONS.to_string());
    let url = format!("http://{address}/");
    let args = ["-t1", "-c", &connections, "-d", &seconds, &url];
    let (status, output, errors) = Program::start(Command::new("wrk").args(args)).end(SOON);
    assert!(status.success(), "{errors}");
    // An answer lost here may be an admission that is not counted.
    assert!(!output.contains("Socket errors"), "{output}");
    let lines = || output.lines().map(str::trim);
    let requests = lines().find_map(|line| line.split_once(" requests in "));
    let refused = lines().find_map(|line| line.strip_prefix("Non-2xx or 3xx responses: "));
    let number = |text: &str| text.parse::<u64>().unwrap_or_else(|_| panic!("{output}"));
    let requests = number(requests.unwrap_or_else(|| panic!("{output}")).0);
    Load {
        requests,
        admitted: requests - refused.map_or(0, number),
    }
}

/// Uses a thread for each connection.
fn by_threads(address: SocketAddr) -> Load {
    let (requests, admitted) = (AtomicU64::new(0), AtomicU64::new(0));
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..CONNECTIONS {
            scope.spawn(|| {
                while !over.load(Relaxed) {
                    requests.fetch_add(1, Relaxed);
                    let answer = get(address, "/", "");
                    admitted.fetch_add(u64::from(answer.status == 200), Relaxed);
                }
            });
        }
        thread::sleep(Duration::from_secs(SECONDS));
        over.store(true, Relaxed);
    });
    Load {
        requests: requests.into_inner(),
        admitted: admitted.into_inner(),
    }
}

/// Drives servers behind one limit, and compares their total admissions with it.
fn admit_one_limit(servers: &[Server]) {
    let start = now();
    let loads = drive(servers);
    let elapsed = u64::try_from(start.elapsed().as_nanos()).expect("a few seconds");
    let admitted: u64 = loads.iter().map(|load| load.admitted).sum();
    // The most that the bucket may admit from before the first request until after the last one.
    let most = BURST + (u128::from(RATE) * u128::from(elapsed) / 1_000_000_000) as u64;
    assert!(admitted <= most, "{admitted} of at most {most}");
    // The least that it must admit under load: nine tenths. The rest allows for lost answers, and
    // for a machine that stalls for a moment.
    let least = (BURST + RATE * SECONDS) * 9 / 10;
    assert!(admitted >= least, "{admitted} of at least {least}");
    for load in loads {
        // Each server received more requests than the limit of all, and each admitted some.
        assert!(load.requests > most, "{} of {most}", load.requests);
        assert!(load.admitted > 0);
    }
}

fn rule() -> String {
    format!("token-bucket {RATE}/1s burst={BURST}")
}

#[test]
fn one_server_under_load_admits_its_limit() {
    let _alone = alone();
    admit_one_limit(&[Server::start(&["--rule", &rule()])]);
}

#[test]
fn two_servers_under_load_admit_one_limit() {
    let _alone = alone();
    let redis = servers::Redis::start();
    let (url, rule) = (redis.url(), rule());
    // A call that was not decided in time must not pass. It should not happen.
    let args = [
        "--rule",
        &rule,
        "--store",
        &url,
        "--on-store-error=closed",
        "--store-timeout=10s",
    ];
    admit_one_limit(&[(); 2].map(|()| Server::start(&args)));
}
