//! One race.

use std::{cmp::Reverse, collections::BinaryHeap};

use tollgate::backoff::Delays;

use super::settings::{BackoffKind, Contenders};
use crate::{faults::nanos, random::Random, timeline::Instant};

/// The result of a race.
#[derive(Clone, Debug, Default)]
pub struct Trial {
    /// When each write reached the row, in nanoseconds.
    pub writes: Vec<Instant>,
    /// When the last client learnt that its write had succeeded, in nanoseconds.
    pub finished: Instant,
}

/// A message that arrives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Message {
    Read,
    ReadAnswer { version: u64 },
    Write { version: u64 },
    WriteAnswer { is_written: bool },
}

/// The time of one way.
struct Way {
    random: Random,
    /// In nanoseconds.
    mean: f64,
    deviation: f64,
}

impl Way {
    fn draw(&mut self) -> u64 {
        (self.mean + self.deviation * self.random.normal()).abs() as u64
    }
}

/// Runs one race: each client reads the version, writes if nobody has written since, and otherwise
/// backs off and begins again, until its write has succeeded.
pub fn trial(contenders: &Contenders, kind: BackoffKind, clients: usize, number: usize) -> Trial {
    let purpose = |what| format!("{what}, {} {clients} {number}", kind.name());
    let mut way = Way {
        random: Random::new(contenders.seed, &purpose("ways")),
        mean: nanos(contenders.delay) as f64,
        deviation: nanos(contenders.deviation) as f64,
    };
    let mut seeds = Random::new(contenders.seed, &purpose("back-offs"));
    let delays = (0..clients).map(|_| kind.delays(contenders, seeds.next()));
    let mut delays: Vec<_> = delays.collect();

    let mut events = BinaryHeap::new();
    let mut sent = 0_u64;
    let mut send = |events: &mut BinaryHeap<_>, at: Instant, client: usize, message| {
        // Messages of one instant arrive in the order in which they were sent.
        sent += 1;
        events.push(Reverse((at, sent, client, message)));
    };
    for client in 0..clients {
        send(&mut events, way.draw(), client, Message::Read);
    }
    let (mut trial, mut version) = (Trial::default(), 0);
    while let Some(Reverse((now, _, client, message))) = events.pop() {
        let answer = match message {
            Message::Read => Message::ReadAnswer { version },
            Message::ReadAnswer { version } => Message::Write { version },
            Message::Write { version: read } => {
                trial.writes.push(now);
                let is_written = read == version;
                version += u64::from(is_written);
                Message::WriteAnswer { is_written }
            }
            Message::WriteAnswer { is_written: true } => {
                trial.finished = now;
                continue;
            }
            Message::WriteAnswer { is_written: false } => Message::Read,
        };
        let wait = match message {
            Message::WriteAnswer { .. } => next(&mut delays[client]),
            _ => 0,
        };
        send(&mut events, now + wait + way.draw(), client, answer);
    }
    trial
}

fn next(delays: &mut Option<Delays>) -> u64 {
    delays.as_mut().and_then(Iterator::next).map_or(0, nanos)
}
