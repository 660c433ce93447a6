//! Scenarios with names.

use std::time::Duration;

use tollgate::AnyRule;

use crate::{
    balancer::Balancing,
    clients::Arrivals,
    faults::{Faults, Span},
    keys::KeyChoice,
    network::Link,
    scenario::Scenario,
};

/// The names of the scenarios, and what they are.
pub const NAMES: [(&str, &str); 16] = [
    ("hot-1", "one node, one hot key at 1.2 of the rate"),
    ("hot-8", "8 nodes, one hot key at 1.2 of the rate"),
    ("hot-100", "100 nodes, one hot key at 1.2 of the rate"),
    ("flood-8", "8 nodes, one hot key at 10 times the rate"),
    ("bursty", "8 nodes, one key, 20 clients that are on and off"),
    (
        "skewed",
        "one node has nine tenths of the calls, 7 nodes share the rest; twice the rate",
    ),
    ("outage", "the store is out for 3 s, longer than the hold"),
    ("lost-data", "the same, and the store forgets all states"),
    ("death", "one of 4 nodes dies with its leases"),
    ("partition", "one of 4 nodes is cut off for 3 s"),
    ("freeze", "one of 4 nodes does nothing for 2 s"),
    (
        "clocks",
        "clocks are up to 10 s apart, and drift by a thousandth",
    ),
    (
        "lossy",
        "one message in 20 is lost, one in 20 comes twice, and they overtake each other",
    ),
    ("zipf", "20 nodes, 2,000 keys by Zipf's law, at random"),
    (
        "zipf-by-key",
        "the same, and all calls of a key go to one node",
    ),
    (
        "windows",
        "8 nodes, one hot key, sliding windows of one second in 10 slices",
    ),
];

const SECOND: Duration = Duration::from_secs(1);

fn rule(text: &str) -> Result<AnyRule, String> {
    text.parse().map_err(|error| format!("{text}: {error}"))
}

/// Returns the scenario of a name.
///
/// # Errors
///
/// When there is none.
pub fn scenario(name: &str) -> Result<Scenario, String> {
    let bucket = rule("token-bucket 1000/s")?;
    let hot = |nodes| Scenario::hot(name, nodes, bucket.clone());
    let with = |nodes, faults| Scenario {
        faults,
        ..hot(nodes)
    };
    let three = Span {
        from: 4 * SECOND,
        to: 7 * SECOND,
    };
    let two = Span {
        from: 4 * SECOND,
        to: 6 * SECOND,
    };
    let zipf = || -> Result<Scenario, String> {
        Ok(Scenario {
            rule: rule("token-bucket 20/s burst=40")?,
            demand: 250_000_000,
            keys: KeyChoice::Zipf {
                keys: 2000,
                exponent: 1_000_000,
            },
            balancing: Balancing::Random,
            ..hot(20)
        })
    };
    Ok(match name {
        "hot-1" => hot(1),
        "hot-8" => hot(8),
        "hot-100" => Scenario::hot(name, 100, rule("token-bucket 10000/s")?),
        "flood-8" => Scenario {
            demand: 10_000_000,
            ..hot(8)
        },
        "bursty" => Scenario {
            arrivals: Arrivals::OnOff {
                on: SECOND / 5,
                off: SECOND,
            },
            clients: 20,
            ..hot(8)
        },
        "skewed" => Scenario {
            demand: 2_000_000,
            balancing: Balancing::Hot(900_000),
            ..hot(8)
        },
        "outage" => with(
            8,
            Faults {
                outages: vec![three],
                ..Faults::default()
            },
        ),
        "lost-data" => with(
            8,
            Faults {
                outages: vec![three],
                loses_data: true,
                ..Faults::default()
            },
        ),
        "death" => with(
            4,
            Faults {
                deaths: vec![(1, 4 * SECOND)],
                ..Faults::default()
            },
        ),
        "partition" => with(
            4,
            Faults {
                partitions: vec![(1, three)],
                ..Faults::default()
            },
        ),
        "freeze" => with(
            4,
            Faults {
                freezes: vec![(1, two)],
                ..Faults::default()
            },
        ),
        "clocks" => Scenario {
            offset: 10 * SECOND,
            drift: 1000,
            time: 60 * SECOND,
            ..hot(8)
        },
        "lossy" => Scenario {
            link: Link {
                jitter: Duration::from_millis(5),
                lost_requests: 25_000,
                lost_answers: 25_000,
                duplicated: 50_000,
                ..Link::default()
            },
            ..hot(8)
        },
        "zipf" => zipf()?,
        "zipf-by-key" => Scenario {
            balancing: Balancing::ByKey,
            ..zipf()?
        },
        "windows" => Scenario {
            rule: rule("sliding-window 1000/s slices=10")?,
            ..hot(8)
        },
        _ => {
            let names = NAMES.map(|(name, _)| name).join(", ");
            return Err(format!(
                "there is no scenario \"{name}\": expected one of {names}"
            ));
        }
    })
}
