//! Access logs: writes a report at the end.

use std::io::{self, BufWriter, Write};

use tollgate::{AnyRule, Cost, key::AnyKey};

use crate::{
    Stop,
    access_log::Entry,
    args::Args,
    comparison::Comparison,
    engine::{Call, Replay, answer::Answer},
    input::{Input, Source, lines_of},
    plot,
    report::Report,
    request::KeyReader,
    tally::Tallies,
    timeline::Timeline,
};

/// Replays access logs and writes a report. Returns `true` if every line was well formed.
pub(crate) fn run(args: Args, key: AnyKey, top: usize) -> Result<bool, Stop> {
    let rule = args.rule.to_string();
    let other = args.compare.as_ref().map(AnyRule::to_string);
    let input = Input::of(args.files, true)?;
    let decider = Decider::new(args.rule, args.compare, args.keys);
    let mut log = Log::new(decider, KeyReader::new(key), args.keys, args.plot.is_some());
    for source in input.sources() {
        log.read(source?)?;
    }
    input.finish();
    let mut out = BufWriter::new(io::stdout().lock());
    let report = Report {
        rule: &rule,
        key: log.key.text(),
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
            &format!("{rule}, for each {}", log.key.text()),
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
    key: KeyReader,
    decider: Decider,
    tallies: Tallies,
    timeline: Option<Timeline>,
    lines: u64,
    malformed: u64,
    without_key: u64,
}

impl Log {
    fn new(decider: Decider, key: KeyReader, keys: Option<usize>, draws: bool) -> Self {
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
        let read = lines_of(source, |line| {
            self.decide(&Entry::parse(line)?);
            Ok(())
        })?;
        self.lines += read.lines;
        self.malformed += read.malformed;
        Ok(())
    }

    fn decide(&mut self, entry: &Entry<'_>) {
        let Some(key) = self.key.read(entry) else {
            self.without_key += 1;
            return;
        };
        let call = Call {
            at: entry.at,
            key: &key,
            class: None,
        };
        let answer = self.decider.spend(call);
        self.tallies.add(&key, entry.at, &answer);
        if let Some(timeline) = &mut self.timeline {
            timeline.add(entry.at, answer.verdict);
        }
    }
}
