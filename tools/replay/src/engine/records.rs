//! Records of CSV (RFC 4180). A malformed record costs only the line in which it begins.
//!
//! It does not use the reader of `csv`, in which an open quote consumes all lines up to the next
//! quote or the end.

use std::io::{self, ErrorKind, Read};

use csv::ByteRecord;

use super::line::is_header;

const BUFFER: usize = 1 << 16;

/// The maximum length in which a closing quote is searched.
const LONGEST: usize = 1 << 20;

const OPEN: &str = "a quote is left open: expected another one at the end of the field, and each quote in it twice";
const BEHIND: &str = "text behind the quote that ends a field: expected a comma, or the end of the line; a quote \
                      in a field in quotes stands there twice";

/// The records of an input, without the header.
pub(super) struct Records<R> {
    input: R,
    /// The bytes read so far.
    text: Vec<u8>,
    /// The length of the part that is already processed.
    done: usize,
    /// `true` at the end of the input.
    ended: bool,
    pub record: ByteRecord,
    /// The line in which the record begins.
    pub line: u64,
    /// The number of lines that end inside it.
    inside: u64,
    next_line: u64,
    first: bool,
}

/// The content at the start of a line.
enum Found {
    /// A record with this many bytes, and this many line breaks in its fields.
    Record(usize, u64),
    /// A record whose end has not been read yet.
    Part,
    /// No record, for the reason in this sentence.
    Malformed(&'static str),
}

impl<R: Read> Records<R> {
    pub(super) fn of(input: R) -> Self {
        Self {
            input,
            text: Vec::with_capacity(BUFFER),
            done: 0,
            ended: false,
            record: ByteRecord::new(),
            line: 0,
            inside: 0,
            next_line: 1,
            first: true,
        }
    }

    /// Reads the next record, or skips a malformed line. `None` is the end.
    #[inline]
    pub(super) fn next(&mut self) -> io::Result<Option<Result<(), &'static str>>> {
        loop {
            let found = self.find()?;
            let rest = &self.text[self.done..];
            let (length, inside, read) = match found {
                Found::Part => return Ok(None),
                Found::Record(length, inside) => (length, inside, Ok(())),
                Found::Malformed(problem) => {
                    let end = rest.iter().position(|byte| *byte == b'\n');
                    (end.map_or(rest.len(), |end| end + 1), 0, Err(problem))
                }
            };
            let is_empty = matches!(&rest[..length], b"\n" | b"\r\n" | b"\r");
            self.done += length;
            (self.line, self.inside) = (self.next_line, inside);
            self.next_line += inside + 1;
            if is_empty {
                continue;
            }
            let first = std::mem::take(&mut self.first);
            if !(first && read.is_ok() && is_header(&self.record)) {
                return Ok(Some(read));
            }
        }
    }

    /// Finds the next record. `Part` is the end.
    fn find(&mut self) -> io::Result<Found> {
        loop {
            let rest = &self.text[self.done..];
            if rest.is_empty() && self.ended {
                return Ok(Found::Part);
            }
            let found = find(rest, self.ended, &mut self.record);
            let is_whole = match found {
                Found::Part => false,
                Found::Record(..) => true,
                // So that the whole line can be skipped.
                Found::Malformed(_) => self.ended || rest.contains(&b'\n'),
            };
            if is_whole {
                return Ok(found);
            }
            self.read_on()?;
        }
    }

    fn read_on(&mut self) -> io::Result<()> {
        let at_begin = self.next_line == 1 && self.done == 0;
        self.text.drain(..self.done);
        self.done = 0;
        let held = self.text.len();
        // Reads as much again as is held, so that a long record is not scanned too often.
        self.text.resize(held + BUFFER.max(held), 0);
        let read = loop {
            match self.input.read(&mut self.text[held..]) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => break read,
            }
        };
        let length = held + read.as_ref().map_or(0, |read| *read);
        self.text.truncate(length);
        self.ended = read? == 0;
        // A byte order mark, as some editors write it, is not part of the first field.
        if at_begin && self.text.starts_with("\u{feff}".as_bytes()) {
            self.text.drain(..3);
        }
        Ok(())
    }

    /// Returns an addition to the message about a malformed record with line breaks in it.
    pub(super) fn goes_on(&self) -> String {
        match self.inside {
            0 => String::new(),
            inside => format!(
                " (it goes on to line {}: is a quote left open?)",
                self.line + inside
            ),
        }
    }
}

/// Finds a record at the start of a text. If the text has not `ended`, more of it follows.
fn find(text: &[u8], ended: bool, record: &mut ByteRecord) -> Found {
    record.clear();
    let (mut at, mut inside) = (0, 0);
    loop {
        let Some(quoted) = text[at..].strip_prefix(b"\"") else {
            let end = text[at..]
                .iter()
                .position(|byte| matches!(byte, b',' | b'\n'));
            let (end, is_last) = match end {
                Some(end) => (at + end, text[at + end] == b'\n'),
                None if ended => (text.len(), true),
                None => return Found::Part,
            };
            let field = &text[at..end];
            if is_last {
                record.push_field(field.strip_suffix(b"\r").unwrap_or(field));
                return Found::Record((end + 1).min(text.len()), inside);
            }
            record.push_field(field);
            at = end + 1;
            continue;
        };
        let mut field = Vec::new();
        let mut rest = quoted;
        loop {
            let Some(quote) = rest.iter().position(|byte| *byte == b'"') else {
                return if ended || text.len() > LONGEST {
                    Found::Malformed(OPEN)
                } else {
                    Found::Part
                };
            };
            field.extend_from_slice(&rest[..quote]);
            rest = &rest[quote + 1..];
            match rest.strip_prefix(b"\"") {
                Some(behind) => {
                    field.push(b'"');
                    rest = behind;
                }
                None => break,
            }
        }
        inside += field.iter().filter(|byte| **byte == b'\n').count() as u64;
        record.push_field(&field);
        at = text.len() - rest.len();
        let length = match rest {
            [b',', ..] => {
                at += 1;
                continue;
            }
            [] | [b'\r'] if !ended => return Found::Part,
            [] => 0,
            [b'\n', ..] | [b'\r'] => 1,
            [b'\r', b'\n', ..] => 2,
            _ => return Found::Malformed(BEHIND),
        };
        return Found::Record(at + length, inside);
    }
}
