//! Decisions of the store in Redis beside its floors and its peer, on a real server on the
//! loopback.
//!
//! `cargo bench --manifest-path benches/redis/Cargo.toml --target-dir target`

use std::{cell::RefCell, time::Duration};

use bench_redis::{
    contender::{Decide, Incr, Minimal, Ours, Throttled},
    race::{Aim, Contender, race},
    refusals::remembered,
    turn::{Load, turn},
};
use support::{
    bench::Mode,
    servers::{self, Reply},
};
use tokio::runtime::Runtime;

const ROUNDS: u64 = 31;

/// The processor time of the server, to the microsecond.
fn server_time(connection: &mut servers::Resp) -> Duration {
    let answer = connection.call(&["INFO", "cpu"]).expect("an answer");
    let Reply::Bytes(text) = answer else {
        panic!("expected the text of INFO, found {answer:?}");
    };
    let text = String::from_utf8(text).expect("text");
    let seconds = |name: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once(':'));
        let value = lines.find_map(|(found, value)| (found == name).then_some(value));
        value
            .and_then(|value| value.parse::<f64>().ok())
            .expect("seconds")
    };
    Duration::from_secs_f64(seconds("used_cpu_user") + seconds("used_cpu_sys"))
}

fn main() {
    let mode = Mode::from_args();
    let server = servers::Redis::start();
    let runtime = Runtime::new().expect("a runtime");
    let connection = RefCell::new(server.connect().expect("a connection"));
    let server_time = || server_time(&mut connection.borrow_mut());

    let run = |name: &str, load: Load, aims: &[Aim]| {
        if !mode.runs(name) {
            return;
        }
        server.command(&["FLUSHALL"]);
        let url = server.url();
        let (ours, incr, minimal, throttled) = runtime.block_on(async {
            (
                Ours::connect(&url).await,
                Incr::connect(&url, load.clients).await,
                Minimal::connect(&url, load.clients).await,
                Throttled::connect(&url, load.clients).await,
            )
        });
        fn contender<'a>(
            name: &'static str,
            who: impl Decide,
            load: Load,
            runtime: &'a Runtime,
            server_time: &'a dyn Fn() -> Duration,
        ) -> Contender<'a> {
            let turn = Box::new(move |round| turn(runtime, load, round, &who, server_time));
            Contender { name, turn }
        }
        let all = vec![
            contender("tollgate", ours.clone(), load, &runtime, &server_time),
            contender("minimal script", minimal, load, &runtime, &server_time),
            contender("INCR", incr, load, &runtime, &server_time),
            contender("throttled", throttled, load, &runtime, &server_time),
        ];
        race(&mode, name, ROUNDS, all, aims);
        let (requests, calls) = ours.requests();
        if mode.full {
            println!("\n{:.1} calls in a request", calls as f64 / requests as f64);
        }
    };
    run(
        "one decision at a time",
        Load {
            tasks: 1,
            clients: 1_000,
            decisions: mode.pick(1_000, 10),
        },
        &[Aim {
            peer: "minimal script",
            rate: 1.1,
            server: Some(0.9),
        }],
    );
    run(
        "64 tasks, 10,000 clients",
        Load {
            tasks: 64,
            clients: 10_000,
            decisions: mode.pick(6_400, 640),
        },
        &[Aim {
            peer: "minimal script",
            rate: 1.6,
            server: Some(0.55),
        }],
    );
    run(
        "64 tasks, one client",
        Load {
            tasks: 64,
            clients: 1,
            decisions: mode.pick(6_400, 640),
        },
        &[
            Aim {
                peer: "minimal script",
                rate: 4.0,
                server: Some(0.15),
            },
            Aim {
                peer: "INCR",
                rate: 1.0,
                server: None,
            },
        ],
    );

    let name = "remembered refusals";
    if mode.runs(name) {
        server.command(&["FLUSHALL"]);
        let refusals = runtime.block_on(remembered(&server.url()));
        let commands = || -> u64 {
            let count = server.info("stats", "total_commands_processed");
            count.parse().expect("a number")
        };
        // Asking for the number takes connections, each with a few commands of its own.
        let (first, second) = (commands(), commands());
        let count = mode.pick(100_000, 1_000);
        let all = vec![
            Contender {
                name: "remembered",
                turn: Box::new(|_| refusals.remote(count)),
            },
            Contender {
                name: "store in memory",
                turn: Box::new(|_| refusals.local(count)),
            },
        ];
        let aim = Aim {
            peer: "store in memory",
            rate: 1.0 / 3.0,
            server: None,
        };
        race(&mode, name, ROUNDS, all, &[aim]);
        assert_eq!(commands() - second, second - first, "the server was asked");
    }
    // The peers' keys stay for ever, and the server's handle asserts that none does.
    server.command(&["FLUSHALL"]);
}
