//! Access logs: writes a report at the end.

use std::io::{self, BufRead, BufReader, BufWriter, Write};

use tollgate::{AnyRule, Cost};

use crate::{
    Stop,
    access_log::Entry,
    args::{Args, Key},
    comparison::Comparison,
    engine::{Call, Replay, answer::Answer},
    input::{Input, Source, cannot_read},
    plot,
    report::Report,
    tally::Tallies,
    timeline::Timeline,
};

/// Replays access logs and writes a report. Returns `true` if every line was well formed.
pub(crate) fn run(args: Args, key: Key, top: usize) -> Result<bool, Stop> {
    let rule = args.rule.to_string();
    let other = args.compare.as_ref().map(AnyRule::to_string);
    let input = Input::of(args.files, true)?;
    let decider = Decider::new(args.rule, args.compare, args.keys);
    let mut log = Log::new(decider, key, args.keys, args.plot.is_some());
    for source in input.sources() {
        log.read(source?)?;
    }
    input.finish();
    let mut out = BufWriter::new(io::stdout().lock());
    let report = Report {
        rule: &rule,
        key: key.word(),
        lines: log.lines,
        malformed: log.malformed,
        without_key: log.without_key,
        turned_away: log.decider.turned_away(),
        tallies: &log.tallies,
        top,
        compared: other.as_deref().zip(log.decider.comparison()),
    };
    let written = report.write(&mut out).and_then(|()| out.flush());
    written.map_err(Stop::writing)?;
    if let Some((file, timeline)) = args.plot.zip(log.timeline) {
        plot::draw(
            &file,
            &format!("{rule}, for each {}", key.word()),
            &timeline,
        )?;
    }
    Ok(log.malformed == 0)
}

/// One rule, or two of which the first is the one to report on.
enum Decider {
    One(Box<Replay>),
    Two(Box<Comparison>),
}

impl Decider {
    fn new(rule: AnyRule, other: Option<AnyRule>, keys: Option<usize>) -> Self {
        match other {
            None => Self::One(Box::new(Replay::new(rule, keys))),
            Some(other) => Self::Two(Box::new(Comparison::new([rule, other], keys))),
        }
    }

    /// Decides a request, and returns the answer of the first rule.
    fn spend(&mut self, call: Call<'_>) -> Answer {
        match self {
            Self::One(replay) => replay.spend(call, Cost::ONE),
            Self::Two(comparison) => {
                let [answer, _] = comparison.spend(call, Cost::ONE);
                answer
            }
        }
    }

    fn turned_away(&self) -> u64 {
        match self {
            Self::One(replay) => replay.turned_away,
            Self::Two(comparison) => {
                let [turned_away, _] = comparison.turned_away();
                turned_away
            }
        }
    }

    fn comparison(&self) -> Option<&Comparison> {
        match self {
            Self::One(_) => None,
            Self::Two(comparison) => Some(comparison),
        }
    }
}

/// The state of a run.
struct Log {
    key: Key,
    decider: Decider,
    tallies: Tallies,
    timeline: Option<Timeline>,
    lines: u64,
    malformed: u64,
    without_key: u64,
}

impl Log {
    fn new(decider: Decider, key: Key, keys: Option<usize>, draws: bool) -> Self {
        Self {
            key,
            decider,
            tallies: Tallies::new(keys),
            timeline: draws.then(Timeline::default),
            lines: 0,
            malformed: 0,
            without_key: 0,
        }
    }

    fn read(&mut self, source: Source) -> Result<(), String> {
        const BUFFER: usize = 1 << 16;
        let mut complaints = source.complaints;
        let mut reader = BufReader::with_capacity(BUFFER, source.reader);
        let mut line = Vec::new();
        for number in 1.. {
            line.clear();
            let read = reader.read_until(b'\n', &mut line);
            if read.map_err(|error| cannot_read(&complaints.name, &error))? == 0 {
                break;
            }
            let line = line.strip_suffix(b"\n").unwrap_or(&line);
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            // A byte order mark, as some editors write it, is not part of the first host.
            let mark = "\u{feff}".as_bytes();
            let line = line
                .strip_prefix(mark)
                .filter(|_| number == 1)
                .unwrap_or(line);
            if line.is_empty() {
                continue;
            }
            self.lines += 1;
            match Entry::parse(line) {
                Ok(entry) => self.decide(&entry),
                Err(problem) => complaints.malformed(number, problem),
            }
        }
        self.malformed += complaints.count;
        Ok(())
    }

    fn decide(&mut self, entry: &Entry<'_>) {
        let key = match self.key {
            Key::Ip => Some(entry.host),
            Key::User => entry.user,
            Key::Path => entry.path,
        };
        let Some(key) = key else {
            self.without_key += 1;
            return;
        };
        let call = Call {
            at: entry.at,
            key,
            class: None,
        };
        let answer = self.decider.spend(call);
        self.tallies.add(key, entry.at, &answer);
        if let Some(timeline) = &mut self.timeline {
            timeline.add(entry.at, answer.verdict);
        }
    }
}
