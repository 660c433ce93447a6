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
    /// This number of bytes was read, and all are those of [`PREFACE`]. 0 at the beginning.
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

    /// Returns `true` if the bytes are those of TLS, in which no head is seen.
    pub(super) fn is_tls(&self) -> bool {
        matches!(self.part, Part::Record(_))
    }

    /// Reads the next bytes of the connection.
    pub(super) fn read(&mut self, bytes: &[u8]) -> Progress {
        let rest = self.rest(bytes);
        self.bytes += bytes.len() - rest.unwrap_or(0);
        // TLS has bounds of its own, and its chains of certificates are long.
        if self.bytes > self.most && !self.is_tls() {
            return Progress::TooLong;
        }
        match rest {
            Some(_) => Progress::Complete,
            None => Progress::Incomplete,
        }
    }

    /// Returns `true` if it is a head of HTTP/1, so far: a server answers nothing before its end.
    pub(super) fn is_of_lines(&self) -> bool {
        matches!(self.part, Part::Preface(_) | Part::Line(_))
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
    fn read(&mut self, mut bytes: &[u8]) -> Option<usize> {
        while let Some((byte, rest)) = bytes.split_first() {
            match (*self, byte) {
                (Self::Empty, b'\n') => return Some(rest.len()),
                (Self::BeforeFirst, b'\r' | b'\n') | (Self::Empty, b'\r') => bytes = rest,
                _ => {
                    let end = bytes.iter().position(|byte| *byte == b'\n');
                    *self = if end.is_some() {
                        Self::Empty
                    } else {
                        Self::Begun
                    };
                    bytes = &bytes[end? + 1..];
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The end of the first head of HTTP/1, found in all bytes at once.
    fn end_of_lines(bytes: &[u8]) -> Option<usize> {
        let begin = bytes.iter().position(|byte| !b"\r\n".contains(byte))?;
        let mut lines = bytes[begin..].split_inclusive(|byte| *byte == b'\n');
        let mut end = begin;
        lines.find_map(|line| {
            end += line.len();
            let is_empty = line.iter().all(|byte| b"\r\n".contains(byte));
            (is_empty && line.ends_with(b"\n")).then_some(end)
        })
    }

    /// The end of the first frame that ends the fields of HTTP/2, behind the preface.
    fn end_of_fields(mut frames: &[u8]) -> Option<usize> {
        let all = frames.len();
        loop {
            let (header, rest) = frames.split_at_checked(9)?;
            let length =
                usize::from(header[0]) << 16 | usize::from(header[1]) << 8 | usize::from(header[2]);
            let (_, rest) = rest.split_at_checked(length)?;
            if [1, 9].contains(&header[3]) && header[4] & 4 == 4 {
                return Some(PREFACE.len() + all - rest.len());
            }
            frames = rest;
        }
    }

    fn end(bytes: &[u8]) -> Option<usize> {
        match bytes.strip_prefix(PREFACE) {
            Some(frames) => end_of_fields(frames),
            // A part of the preface may become one.
            None if PREFACE.starts_with(bytes) => None,
            None => {
                // The byte that is none of the preface.
                let differs = bytes.iter().zip(PREFACE).position(|(a, b)| a != b)?;
                end_of_lines(bytes).map(|end| end.max(differs + 1))
            }
        }
    }

    /// Returns what each byte by itself, and what all pieces lead to.
    fn read(bytes: &[u8], pieces: &[usize]) -> Option<usize> {
        let mut head = Head::new(usize::MAX);
        let mut rest = bytes;
        for piece in pieces.iter().cycle() {
            let (piece, after) = rest.split_at(rest.len().min(*piece));
            if head.read(piece) == Progress::Complete {
                return Some(bytes.len() - after.len());
            }
            rest = after;
            if rest.is_empty() {
                return None;
            }
        }
        None
    }

    fn lines() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![
            4 => Just(b'\n'),
            4 => Just(b'\r'),
            2 => Just(b'P'),
            3 => 32..127_u8,
            1 => 0..=255_u8,
        ];
        // Also behind a part of the preface.
        let begin = (0..PREFACE.len()).prop_map(|count| PREFACE[..count].to_vec());
        let begin = prop_oneof![Just(Vec::new()), begin];
        (begin, prop::collection::vec(byte, 0..40))
            .prop_map(|(begin, bytes)| [begin, bytes].concat())
    }

    fn frames() -> impl Strategy<Value = Vec<u8>> {
        let frame = (0..12_u8, 0..=9_u8, 0..8_u8, any::<u32>(), 0..3_usize);
        let frame = frame.prop_map(|(length, kind, flags, stream, cut)| {
            let mut frame = vec![0, 0, length, kind, flags];
            frame.extend(stream.to_be_bytes());
            frame.resize(9 + usize::from(length), 7);
            frame.truncate(frame.len() - cut.saturating_sub(1));
            frame
        });
        prop::collection::vec(frame, 0..6).prop_map(|frames| {
            let mut bytes = PREFACE.to_vec();
            bytes.extend(frames.concat());
            bytes
        })
    }

    proptest! {
        #[test]
        fn the_end_is_found_however_the_bytes_come(
            bytes in prop_oneof![lines(), frames()],
            pieces in prop::collection::vec(1..50_usize, 1..6),
        ) {
            let end = end(&bytes);
            prop_assert_eq!(read(&bytes, &[1]), end);
            let found = read(&bytes, &pieces);
            prop_assert_eq!(found.is_some(), end.is_some());
            // In the piece that ends it.
            prop_assert!(found >= end);
            // Too long by a byte is too long, in one piece, too.
            if let Some(end) = end.filter(|end| *end > PREFACE.len()) {
                let most = |most| Head::new(most).read(&bytes);
                prop_assert_eq!(most(end), Progress::Complete);
                prop_assert_eq!(most(end - 1), Progress::TooLong);
            }
        }

        #[test]
        fn records_of_tls_are_counted_by_their_lengths(
            before in prop::collection::vec((20..23_u8, 0..300_u16), 0..6),
            length in 0..300_u16,
            piece in 1..400_usize,
        ) {
            let record = |(kind, length): (u8, u16)| {
                let mut record = vec![kind, 3, 3];
                record.extend(length.to_be_bytes());
                record.resize(5 + usize::from(length), 23);
                record
            };
            // The first is of a handshake.
            let mut bytes = record((22, 4));
            bytes.extend(before.into_iter().flat_map(record));
            prop_assert_eq!(read(&bytes, &[piece]), None);
            bytes.extend(record((23, length)));
            prop_assert_eq!(read(&bytes, &[1]), Some(bytes.len()));
            prop_assert_eq!(read(&bytes, &[piece]), Some(bytes.len()));
        }
    }
}
