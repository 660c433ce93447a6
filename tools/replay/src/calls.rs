//! CSV: answers each call with a line.

use std::io;

use tollgate::Timestamp;

use crate::{
    Stop,
    args::Args,
    engine::{
        Replay,
        answer::Answer,
        rows::{self, Answers, Failure, Watch},
    },
    input::{Complaints, Input, cannot_read, complain},
    numbers::Grouped,
    plot,
    timeline::Timeline,
};

/// Replays CSV. Returns `true` if every line was well formed.
pub(crate) fn run(args: Args) -> Result<bool, Stop> {
    let mut title = args.rule.to_string();
    let input = Input::of(args.files, false)?;
    let mut answers = Answers::to(io::stdout().lock()).map_err(Stop::writing)?;
    let mut replay = Replay::new(args.rule, args.keys);
    let mut timeline = args.plot.as_ref().map(|_| Timeline::default());
    let mut malformed = 0;
    for source in input.sources() {
        let source = source?;
        let mut notes = Notes {
            complaints: source.complaints,
            timeline: timeline.as_mut(),
        };
        let result = rows::replay(source.reader, &mut answers, &mut replay, &mut notes);
        result.map_err(|failure| match failure {
            Failure::Read(error) => cannot_read(&notes.complaints.name, &error).into(),
            Failure::Write(error) => Stop::writing(error),
        })?;
        malformed += notes.complaints.count;
    }
    answers.flush().map_err(Stop::writing)?;
    if malformed > 0 {
        let malformed = Grouped(malformed.into());
        complain(&format!("replay: malformed lines, skipped: {malformed}\n"));
    }
    if replay.turned_away > 0 {
        let turned_away = Grouped(replay.turned_away.into());
        complain(&format!(
            "replay: lines turned away for lack of room: {turned_away}; a larger --keys would decide them\n"
        ));
    }
    if replay.changes() > 0 {
        title += &format!(", then {} more", replay.changes());
    }
    if let Some((file, timeline)) = args.plot.zip(timeline) {
        plot::draw(&file, &title, &timeline)?;
    }
    Ok(malformed == 0)
}

struct Notes<'a> {
    complaints: Complaints,
    timeline: Option<&'a mut Timeline>,
}

impl Watch for Notes<'_> {
    fn malformed(&mut self, line: u64, problem: &str) {
        self.complaints.malformed(line, problem);
    }

    #[inline]
    fn answered(&mut self, at: Timestamp, answer: &Answer) {
        if let Some(timeline) = &mut self.timeline {
            timeline.add(at, answer.verdict);
        }
    }
}
