//! The rows of the table. Each is run on every library.

mod arithmetic;
mod crates;
mod flood;
mod http;
mod life;
mod memory;
mod waits;

pub use self::{crates::Crates, flood::FloodReport};

use crate::library::Library;

/// A row: its title, and the cell of a library.
pub struct Probe {
    pub title: &'static str,
    pub run: fn(&dyn Library, &Surroundings) -> String,
}

/// What probes need beside the library.
pub struct Surroundings {
    /// The URL of a Redis server.
    pub redis: String,
    pub crates: Crates,
}

/// The library's interface has no such thing.
const NO: &str = "no";
/// The row is about HTTP, and the library has no layer that answers.
const NO_LAYER: &str = "–";

pub const ALL: [Probe; 21] = [
    Probe {
        title: "crates compiled",
        run: crates::crates,
    },
    Probe {
        title: "works without a runtime",
        run: life::without_runtime,
    },
    Probe {
        title: "a budget for each client",
        run: arithmetic::keys,
    },
    Probe {
        title: "services of one layer share it",
        run: life::shares,
    },
    Probe {
        title: "algorithms",
        run: arithmetic::algorithms,
    },
    Probe {
        title: "a burst around the end of a window",
        run: waits::boundary,
    },
    Probe {
        title: "a refusal is",
        run: http::refusal,
    },
    Probe {
        title: "its wait for one of 2 in 3.6 s; after it",
        run: waits::honest,
    },
    Probe {
        title: "fields on admitted responses",
        run: http::fields,
    },
    Probe {
        title: "first entry of `X-Forwarded-For`",
        run: http::spoofed,
    },
    Probe {
        title: "no peer address",
        run: http::without_peer,
    },
    Probe {
        title: "calls of several units; above the burst",
        run: arithmetic::costs,
    },
    Probe {
        title: "two limits, both charged or none",
        run: arithmetic::both,
    },
    Probe {
        title: "charges corrected later",
        run: arithmetic::corrections,
    },
    Probe {
        title: "waits instead of refusing",
        run: waits::waiting,
    },
    Probe {
        title: "rule set while in use",
        run: life::live,
    },
    Probe {
        title: "clock of a test",
        run: life::mocked,
    },
    Probe {
        title: "one limit for several processes",
        run: life::shared,
    },
    Probe {
        title: "200,000 keys: memory",
        run: memory::memory,
    },
    Probe {
        title: "… an exhausted client then",
        run: memory::exhausted,
    },
    Probe {
        title: "… new clients admitted",
        run: memory::newcomers,
    },
];

fn yes_no(yes: bool) -> String {
    if yes { "yes" } else { NO }.to_owned()
}

/// Counts how many of so many calls of one unit are admitted.
fn admitted(budget: &mut crate::library::Budget, client: std::net::IpAddr, calls: u32) -> u32 {
    (0..calls)
        .filter(|_| budget(client, 1).is_admitted())
        .count() as u32
}
