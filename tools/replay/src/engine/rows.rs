//! Reads lines and writes answers.

use std::{
    io::{self, Read, Write},
    time::Duration,
};

use csv::{Writer, WriterBuilder};
use tollgate::Timestamp;

use super::{Replay, answer::Answer, line::Line, records::Records};

const BUFFER: usize = 1 << 16;

/// Receives the events of a replay.
pub trait Watch {
    /// The line with this number was skipped, for the reason in a sentence.
    fn malformed(&mut self, line: u64, problem: &str);
    /// A request was answered. Looks and refunds are not requests.
    fn answered(&mut self, at: Timestamp, answer: &Answer);
}

/// The side that failed.
#[derive(Debug)]
pub enum Failure {
    Read(io::Error),
    Write(io::Error),
}

/// Reads all lines of `input`, and writes an answer for each.
pub fn replay(
    input: impl Read,
    answers: &mut Answers<impl Write>,
    replay: &mut Replay,
    watch: &mut impl Watch,
) -> Result<(), Failure> {
    let mut records = Records::of(input);
    while let Some(read) = records.next().map_err(Failure::Read)? {
        let parsed = match read {
            Ok(()) => Line::parse(&records.record),
            Err(problem) => Err(problem.to_owned()),
        };
        let (call, answer) = match parsed {
            Ok(Line::Spend(call, cost)) => {
                let answer = replay.spend(call, cost);
                watch.answered(call.at, &answer);
                (call, answer)
            }
            Ok(Line::Look(call, cost)) => (call, replay.look(call, cost)),
            Ok(Line::Refund(call)) => (call, replay.refund(call)),
            Ok(Line::Rule(rule)) => {
                replay.change_rule(rule);
                continue;
            }
            Err(problem) => {
                watch.malformed(records.line, &(problem + &records.goes_on()));
                continue;
            }
        };
        let written = answers.write(call.at, call.key, &answer);
        written.map_err(Failure::Write)?;
    }
    Ok(())
}

/// Writes answers, one per line.
pub struct Answers<W: Write> {
    output: Writer<W>,
    digits: itoa::Buffer,
}

impl<W: Write> Answers<W> {
    /// Writes the header with the names of the fields.
    pub fn to(output: W) -> io::Result<Self> {
        let mut output = WriterBuilder::new()
            .buffer_capacity(BUFFER)
            .from_writer(output);
        let header = output.write_record([
            "t_ns",
            "key",
            "verdict",
            "class",
            "remaining",
            "retry_after_ns",
            "reset_after_ns",
            "delay_ns",
        ]);
        header.map_err(io_error)?;
        Ok(Self {
            output,
            digits: itoa::Buffer::new(),
        })
    }

    #[inline]
    pub fn write(&mut self, at: Timestamp, key: &[u8], answer: &Answer) -> io::Result<()> {
        self.number(Some(at.as_nanos()))?;
        self.text(key)?;
        self.text(answer.verdict.word().as_bytes())?;
        self.number(answer.class)?;
        self.number(answer.remaining)?;
        self.nanos(answer.retry_after)?;
        self.nanos(answer.reset_after)?;
        self.nanos(answer.delay)?;
        self.output.write_record(None::<&[u8]>).map_err(io_error)
    }

    pub fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }

    fn text(&mut self, text: &[u8]) -> io::Result<()> {
        self.output.write_field(text).map_err(io_error)
    }

    fn number(&mut self, number: Option<impl itoa::Integer>) -> io::Result<()> {
        let text = number.map_or("", |number| self.digits.format(number));
        self.output.write_field(text).map_err(io_error)
    }

    /// Writes whole nanoseconds. Most waits fit into 64 bits.
    fn nanos(&mut self, wait: Option<Duration>) -> io::Result<()> {
        let Some(wait) = wait else {
            return self.number(None::<u64>);
        };
        let nanos = wait.as_nanos();
        match u64::try_from(nanos) {
            Ok(nanos) => self.number(Some(nanos)),
            Err(_) => self.number(Some(nanos)),
        }
    }
}

/// Returns the I/O error inside an error of `csv`, whose own conversion would hide its kind.
fn io_error(error: csv::Error) -> io::Error {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        other => io::Error::other(format!("{other:?}")),
    }
}
