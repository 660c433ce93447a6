//! Lines in, answers out.

use std::{
    io::{self, Read, Write},
    time::Duration,
};

use csv::{ByteRecord, Reader, ReaderBuilder, Terminator, Writer, WriterBuilder};
use tollgate::Timestamp;

use super::{
    Replay,
    answer::Answer,
    line::{Line, is_empty, is_header},
};

const BUFFER: usize = 1 << 16;

/// What happens on the way.
pub(crate) trait Watch {
    /// The line with this number was skipped, for a reason that is told in a sentence.
    fn malformed(&mut self, line: u64, problem: &str);
    /// A request was answered; a look or a refund is none.
    fn answered(&mut self, at: Timestamp, answer: &Answer);
}

/// Which side of it failed.
#[derive(Debug)]
pub(crate) enum Failure {
    Read(io::Error),
    Write(io::Error),
}

/// Reads all lines of `input`, and writes an answer for each.
pub(crate) fn replay(
    input: impl Read,
    answers: &mut Answers<impl Write>,
    replay: &mut Replay,
    watch: &mut impl Watch,
) -> Result<(), Failure> {
    let mut lines = Lines::of(input);
    while lines.next().map_err(Failure::Read)? {
        let (call, answer) = match Line::parse(&lines.record) {
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
                let (line, problem) = lines.place(problem);
                watch.malformed(line, &problem);
                continue;
            }
        };
        let written = answers.write(call.at, call.key, &answer);
        written.map_err(Failure::Write)?;
    }
    Ok(())
}

/// The lines of an input, without the header.
pub(crate) struct Lines<R> {
    reader: Reader<Tail<R>>,
    pub(crate) record: ByteRecord,
    /// Where the reader stood before the record.
    begin: u64,
    first: bool,
}

impl<R: Read> Lines<R> {
    pub(crate) fn of(input: R) -> Self {
        let input = Tail {
            input,
            bytes: 0,
            last: b'\n',
        };
        let mut reader = ReaderBuilder::new();
        // The carriage return of CRLF is taken off by hand: as a terminator it would leave the line break
        // behind, and numbers of lines would be wrong.
        let reader = reader
            .terminator(Terminator::Any(b'\n'))
            .has_headers(false)
            .flexible(true)
            .buffer_capacity(BUFFER);
        Self {
            reader: reader.from_reader(input),
            record: ByteRecord::new(),
            begin: 1,
            first: true,
        }
    }

    /// Goes to the next line; whether there was one.
    #[inline]
    pub(crate) fn next(&mut self) -> io::Result<bool> {
        loop {
            self.begin = self.reader.position().line();
            let read = self.reader.read_byte_record(&mut self.record);
            if !read.map_err(io_error)? {
                return Ok(false);
            }
            if is_empty(&self.record) {
                continue;
            }
            let first = std::mem::take(&mut self.first);
            if !(first && is_header(&self.record)) {
                return Ok(true);
            }
        }
    }

    /// The number of the line, and what more there is to say of a problem.
    fn place(&self, problem: String) -> (u64, String) {
        let inside = self.record.as_slice().iter();
        let inside = inside.filter(|byte| **byte == b'\n').count() as u64;
        let position = self.reader.position();
        let tail = self.reader.get_ref();
        // Nothing stands behind the last line, nor behind a quote that was left open.
        let at_end = position.byte() == tail.bytes
            && (tail.last != b'\n' || self.record.as_slice().ends_with(b"\n"));
        // Empty lines before it have been skipped with it, unseen.
        let line = (position.line() - u64::from(!at_end) - inside).max(self.begin);
        if inside == 0 {
            return (line, problem);
        }
        let to = format!(
            " (it goes on to line {}: is a quote left open?)",
            line + inside
        );
        (line, problem + &to)
    }
}

/// Remembers how an input ended.
struct Tail<R> {
    input: R,
    bytes: u64,
    last: u8,
}

impl<R: Read> Read for Tail<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(buffer)?;
        self.bytes += read as u64;
        self.last = buffer[..read].last().copied().unwrap_or(self.last);
        Ok(read)
    }
}

/// Where answers go, a line each.
pub(crate) struct Answers<W: Write> {
    output: Writer<W>,
    digits: itoa::Buffer,
}

impl<W: Write> Answers<W> {
    /// Begins with the names of the fields.
    pub(crate) fn to(output: W) -> io::Result<Self> {
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
    pub(crate) fn write(&mut self, at: Timestamp, key: &[u8], answer: &Answer) -> io::Result<()> {
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

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }

    fn text(&mut self, text: &[u8]) -> io::Result<()> {
        self.output.write_field(text).map_err(io_error)
    }

    fn number(&mut self, number: Option<impl itoa::Integer>) -> io::Result<()> {
        let text = number.map_or("", |number| self.digits.format(number));
        self.output.write_field(text).map_err(io_error)
    }

    /// Whole nanoseconds; most waits take 64 bits.
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

/// The error that was met: the conversion of `csv` would hide its kind.
fn io_error(error: csv::Error) -> io::Error {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        other => io::Error::other(format!("{other:?}")),
    }
}
