//! Finds the end of the first request's head in the bytes of a connection.
//!
//! Only the place of the end is searched for: what is no HTTP is answered by the server, which then
//! closes the connection.

/// The first bytes of HTTP/2 (RFC 9113 §3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The part of a connection's first bytes that has been read.
#[derive(Debug)]
pub(super) struct Head {
    part: Part,
    /// Bytes so far, of HTTP.
    bytes: usize,
    most: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// More bytes must follow.
    Incomplete,
    /// The head is complete.
    Complete,
    /// It is longer than allowed.
    TooLong,
}

#[derive(Clone, Copy, Debug)]
enum Part {
    /// So many bytes are those of [`PREFACE`], also none.
    Preface(usize),
    Line(Line),
    Frame(Chunk<9>),
    Record(Chunk<5>),
    /// It is complete.
    Over,
}

/// The line of HTTP/1 that is being read.
#[derive(Clone, Copy, Debug)]
enum Line {
    /// Before the request line, where servers skip line ends (RFC 9112 §2.2).
    BeforeFirst,
    /// It has characters.
    Begun,
    /// It is empty, so far.
    Empty,
}

/// A frame of HTTP/2 or a record of TLS: a header of `N` bytes, and a payload.
#[derive(Clone, Copy, Debug)]
struct Chunk<const N: usize> {
    header: [u8; N],
    filled: usize,
    /// Bytes of the payload that are to come.
    payload: usize,
}

impl<const N: usize> Chunk<N> {
    const NEXT: Self = Self {
        header: [0; N],
        filled: 0,
        payload: 0,
    };

    /// Reads to the end of the chunk. Returns its header, and what follows; `None` if more bytes
    /// must come.
    fn read<'a>(
        &mut self,
        mut bytes: &'a [u8],
        payload: impl Fn(&[u8; N]) -> usize,
    ) -> Option<([u8; N], &'a [u8])> {
        if self.filled < N {
            let count = bytes.len().min(N - self.filled);
            let (header, rest) = bytes.split_at(count);
            self.header[self.filled..self.filled + count].copy_from_slice(header);
            self.filled += count;
            if self.filled < N {
                return None;
            }
            self.payload = payload(&self.header);
            bytes = rest;
        }
        let count = bytes.len().min(self.payload);
        self.payload -= count;
        (self.payload == 0).then(|| (self.header, &bytes[count..]))
    }
}

impl Head {
    /// Creates a head of `most` bytes at most.
    pub(super) fn new(most: usize) -> Self {
        Self {
            part: Part::Preface(0),
            bytes: 0,
            most,
        }
    }

    /// Reads the next bytes of the connection.
    pub(super) fn read(&mut self, bytes: &[u8]) -> Progress {
        let rest = self.rest(bytes);
        self.bytes += bytes.len() - rest.unwrap_or(0);
        // TLS has bounds of its own, and its chains of certificates are long.
        if self.bytes > self.most && !matches!(self.part, Part::Record(_)) {
            return Progress::TooLong;
        }
        match rest {
            Some(_) => Progress::Complete,
            None => Progress::Incomplete,
        }
    }

    /// Returns how many of the bytes follow the head, if it is complete.
    fn rest(&mut self, mut bytes: &[u8]) -> Option<usize> {
        if let Part::Preface(matched) = self.part {
            bytes = self.begin(matched, bytes)?;
        }
        match &mut self.part {
            Part::Over => Some(bytes.len()),
            Part::Preface(_) => None,
            Part::Line(line) => line.read(bytes),
            Part::Frame(frame) => loop {
                let (header, rest) = frame.read(bytes, |header| {
                    let [a, b, c, ..] = *header;
                    u32::from_be_bytes([0, a, b, c]) as usize
                })?;
                // HEADERS or CONTINUATION, with END_HEADERS (RFC 9113 §6.2, §6.10).
                if matches!(header[3], 1 | 9) && header[4] & 4 != 0 {
                    return Some(rest.len());
                }
                *frame = Chunk::NEXT;
                bytes = rest;
            },
            Part::Record(record) => loop {
                let (header, rest) = record.read(bytes, |header| {
                    usize::from(u16::from_be_bytes([header[3], header[4]]))
                })?;
                // Application data (RFC 8446 §5.1): the handshake is over on the client's side.
                if header[0] == 23 {
                    return Some(rest.len());
                }
                *record = Chunk::NEXT;
                bytes = rest;
            },
        }
    }

    /// Finds out which protocol it is. Returns what is left; `None` if that is not known yet, or
    /// nothing is left.
    fn begin<'a>(&mut self, matched: usize, bytes: &'a [u8]) -> Option<&'a [u8]> {
        /// The type of a record in which a handshake of TLS begins (RFC 8446 §5.1).
        const HANDSHAKE: u8 = 22;
        if matched == 0 && bytes.first() == Some(&HANDSHAKE) {
            self.part = Part::Record(Chunk::NEXT);
            return Some(bytes);
        }
        let expected = &PREFACE[matched..];
        let same = expected.iter().zip(bytes).take_while(|(a, b)| a == b);
        let same = same.count();
        if same == expected.len() {
            self.part = Part::Frame(Chunk::NEXT);
            return Some(&bytes[same..]);
        }
        if same == bytes.len() {
            self.part = Part::Preface(matched + same);
            return None;
        }
        // No preface, so it is a request line, whatever it is. The bytes of the preface that were
        // read before may have been a whole head.
        let mut line = Line::BeforeFirst;
        let is_over = line.read(&PREFACE[..matched]).is_some();
        self.part = if is_over {
            Part::Over
        } else {
            Part::Line(line)
        };
        Some(bytes)
    }
}

impl Line {
    /// Returns how many bytes follow the empty line that ends a head.
    fn read(&mut self, bytes: &[u8]) -> Option<usize> {
        for (at, byte) in bytes.iter().enumerate() {
            *self = match (*self, byte) {
                (Self::Empty, b'\n') => return Some(bytes.len() - at - 1),
                (Self::Begun, b'\n') => Self::Empty,
                (line @ (Self::BeforeFirst | Self::Empty), b'\r') => line,
                (Self::BeforeFirst, b'\n') => Self::BeforeFirst,
                _ => Self::Begun,
            };
        }
        None
    }
}
