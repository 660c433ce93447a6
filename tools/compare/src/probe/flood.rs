//! A flood of clients, in a process of its own whose memory is measured.

use std::{fmt, fs, str::FromStr};

use crate::{
    clients::client,
    library::{Library, Rule},
};

/// Clients that a limit may hold, if it can be told so.
const KEYS: usize = 10_000;
/// Clients after which a limit that holds no more than [`KEYS`] does not grow.
const WARM: u32 = 20_000;
const CLIENTS: u32 = 200_000;

/// What a flood did to a limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FloodReport {
    /// Growth of the resident memory from [`WARM`] clients to [`CLIENTS`], in bytes for each.
    pub bytes_per_client: u64,
    /// A client that had used up its limit is admitted after the flood.
    pub is_refilled: bool,
    /// Admitted of the new clients, in percent.
    pub admitted: f64,
}

impl FloodReport {
    /// Floods a limit of two calls an hour.
    pub fn measure(library: &dyn Library) -> Self {
        let mut budget = library.budget(Rule::per_hour(2), Some(KEYS));
        let victim = client(CLIENTS);
        while budget(victim, 1).is_admitted() {}
        let mut admitted = 0;
        let mut flood = |from, to| {
            for number in from..to {
                admitted += u32::from(budget(client(number), 1).is_admitted());
            }
            resident()
        };
        let (warm, all) = (flood(0, WARM), flood(WARM, CLIENTS));
        Self {
            bytes_per_client: all.saturating_sub(warm) / u64::from(CLIENTS - WARM),
            is_refilled: budget(victim, 1).is_admitted(),
            admitted: f64::from(admitted) * 100.0 / f64::from(CLIENTS),
        }
    }
}

/// Returns the resident memory of this process, in bytes.
fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB"));
    kilobytes
        .and_then(|text| text.parse::<u64>().ok())
        .expect("a number of kB")
        * 1024
}

/// As one process writes it for another.
impl fmt::Display for FloodReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {} {}",
            self.bytes_per_client, self.is_refilled, self.admitted
        )
    }
}

impl FromStr for FloodReport {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = (|| {
            let mut words = text.split_whitespace();
            Some(Self {
                bytes_per_client: words.next()?.parse().ok()?,
                is_refilled: words.next()?.parse().ok()?,
                admitted: words.next()?.parse().ok()?,
            })
        })();
        parsed.ok_or_else(|| format!("expected a report of a flood, found {text:?}"))
    }
}
