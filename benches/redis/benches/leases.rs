//! Decisions with leases, and of a node that pushes to the store later, beside one `EVALSHA` of the
//! least script for each, on a real server on the loopback.
//!
//! `cargo bench --manifest-path benches/redis/Cargo.toml --target-dir target --bench leases`

use std::time::Duration;

use bench_redis::{
    contender::{Decide, Minimal},
    leased::{PushedLater, WithLeases},
    race::{Aim, Contender, race},
    turn::{Load, turn},
};
use support::{bench::Mode, servers};
use tokio::runtime::Runtime;

const ROUNDS: u64 = 15;
const TASKS: usize = 64;

struct Setting {
    name: &'static str,
    clients: usize,
    /// Per second and client; nobody reaches it.
    rate: u64,
    hold: Duration,
    decisions: usize,
    aims: &'static [Aim],
}

const SETTINGS: [Setting; 3] = [
    Setting {
        name: "hot key",
        clients: 1,
        rate: 10_000_000,
        hold: Duration::from_millis(100),
        decisions: 128_000,
        aims: &[Aim {
            peer: "minimal script",
            rate: 15.0,
            server: None,
        }],
    },
    // All tasks together decide 200,000 times a second and more, so each client is asked for 20
    // times in a second.
    Setting {
        name: "10,000 keys",
        clients: 10_000,
        rate: 10_000,
        hold: Duration::from_secs(1),
        decisions: 64_000,
        aims: &[Aim {
            peer: "minimal script",
            rate: 5.0,
            server: None,
        }],
    },
    Setting {
        name: "cold keys",
        clients: 1_000_000,
        rate: 1_000,
        hold: Duration::from_millis(100),
        decisions: 6_400,
        aims: &[Aim {
            peer: "without leases",
            rate: 1.0 / 1.1,
            server: None,
        }],
    },
];

fn main() {
    let mode = Mode::from_args();
    let server = servers::Redis::start();
    let runtime = Runtime::new().expect("a runtime");
    for setting in &SETTINGS {
        if mode.runs(setting.name) {
            compete(&mode, &server, &runtime, setting);
        }
    }
    server.command(&["FLUSHALL"]);
}

fn compete(mode: &Mode, server: &servers::Redis, runtime: &Runtime, setting: &Setting) {
    let Setting {
        name,
        clients,
        rate,
        hold,
        decisions,
        aims,
    } = *setting;
    server.command(&["FLUSHALL"]);
    let url = server.url();
    let (leased, later, without, minimal) = runtime.block_on(async {
        (
            WithLeases::connect(&url, "leased", rate, hold).await,
            PushedLater::connect(&url, "later", rate).await,
            WithLeases::connect(&url, "plain", rate, Duration::ZERO).await,
            Minimal::connect(&url, clients).await,
        )
    });
    let load = |decisions: usize| Load {
        tasks: TASKS,
        clients,
        decisions: mode.pick(decisions, 640),
    };
    fn contender<'a>(
        name: &'static str,
        who: impl Decide,
        load: Load,
        runtime: &'a Runtime,
    ) -> Contender<'a> {
        // The server's time is not read: it would be that of the turn before, too, for units that
        // are asked for ahead.
        let turn = Box::new(move |round| turn(runtime, load, round, &who, &|| Duration::ZERO));
        Contender { name, turn }
    }
    // A turn lasts about as long for each.
    let slow = load(decisions.min(6_400));
    let (before, stats_before) = (leased.stats(), later.stats());
    let all = vec![
        contender("with leases", leased.clone(), load(decisions), runtime),
        contender("pushed later", later.clone(), load(decisions), runtime),
        contender("minimal script", minimal, slow, runtime),
        contender("without leases", without, slow, runtime),
    ];
    race(mode, name, ROUNDS, all, aims);
    let after = leased.stats();
    if mode.full {
        let asked = after.asked - before.asked;
        let here = after.admitted + after.refused - before.admitted;
        println!(
            "\n{:.4} calls to the server for each decision\n",
            asked as f64 / (asked + here) as f64
        );
        let later_stats = later.stats();
        let decisions = later_stats.admitted + later_stats.refused
            - stats_before.admitted
            - stats_before.refused;
        println!(
            "pushed later: {:.4} calls for each decision, {} waits, {} pushed with each call\n",
            (later_stats.syncs - stats_before.syncs) as f64 / decisions as f64,
            later_stats.waited - stats_before.waited,
            (later_stats.pushed - stats_before.pushed)
                / (later_stats.syncs - stats_before.syncs).max(1)
        );
    }
}
