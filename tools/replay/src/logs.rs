//! Access logs: writes a report at the end.

use std::io::{self, BufRead, BufReader, BufWriter, Write};

use tollgate::{AnyRule, Cost};

use crate::{
    Stop,
    access_log::Entry,
    args::{Args, Key},
    engine::{Call, Replay},
    input::{Input, Source, cannot_read},
    plot,
    report::Report,
    tally::Tallies,
    timeline::Timeline,
};

/// Replays access logs and writes a report. Returns `true` if every line was well formed.
pub(crate) fn run(args: Args, key: Key, top: usize) -> Result<bool, Stop> {
    let rule = args.rule.to_string();
    let input = Input::of(args.files, true)?;
    let mut log = Log::new(args.rule, key, args.keys, args.plot.is_some());
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
        turned_away: log.replay.turned_away,
        tallies: &log.tallies,
        top,
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

/// The state of a run.
struct Log {
    key: Key,
    replay: Replay,
    tallies: Tallies,
    timeline: Option<Timeline>,
    lines: u64,
    malformed: u64,
    without_key: u64,
}

impl Log {
    fn new(rule: AnyRule, key: Key, keys: Option<usize>, draws: bool) -> Self {
        Self {
            key,
            replay: Replay::new(rule, keys),
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
        let answer = self.replay.spend(call, Cost::ONE);
        self.tallies.add(key, entry.at, &answer);
        if let Some(timeline) = &mut self.timeline {
            timeline.add(entry.at, answer.verdict);
        }
    }
}
