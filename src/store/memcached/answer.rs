//! What the server answers, out of a stream of bytes.

/// The answer to one command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// `VA`: a value, and the number of its last write where it was asked for.
    Value { cas: Option<u64>, bytes: Vec<u8> },
    /// `HD`: done, and the number of this write where it was asked for.
    Done { cas: Option<u64> },
    /// `EN` to a read, `NF` to a write: nothing is there.
    Absent,
    /// `NS` or `EX`: something else is there.
    Conflict,
    /// `VERSION`.
    Version(String),
    /// The lines of `stats`.
    Lines(Vec<(String, String)>),
    /// `ERROR`, `CLIENT_ERROR`, `SERVER_ERROR`: the whole line.
    Error(String),
}

/// What lies in the stream is no answer: nobody can say what comes after it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Garbage(pub(super) String);

/// The longest line; what `stats` answers has some thousand bytes in lines of a hundred at most.
const LONGEST_LINE: usize = 8 * 1024;
/// More than any server takes for an item (`-I`).
const LONGEST_VALUE: usize = 1 << 30;
/// As many as `stats settings` has, many times over.
const MOST_LINES: usize = 10_000;

impl Answer {
    /// The first answer, and how many bytes it has; `None` where its end is not there yet.
    pub(super) fn read(bytes: &[u8]) -> Result<Option<(Self, usize)>, Garbage> {
        let Some((line, mut end)) = line(bytes)? else {
            return Ok(None);
        };
        let mut words = line.split(|byte| *byte == b' ');
        let answer = match words.next().unwrap_or_default() {
            b"VA" => {
                let length = words.next().and_then(number);
                let Some(length) = length.filter(|length| *length <= LONGEST_VALUE as u64) else {
                    return Err(garbage(line));
                };
                let length = length as usize;
                let Some(rest) = bytes.get(end..end + length + 2) else {
                    return Ok(None);
                };
                if !rest.ends_with(b"\r\n") {
                    return Err(garbage(line));
                }
                end += length + 2;
                Self::Value {
                    cas: cas(words),
                    bytes: rest[..length].to_vec(),
                }
            }
            // `OK` in the first releases that knew these commands.
            b"HD" | b"OK" => Self::Done { cas: cas(words) },
            b"EN" | b"NF" => Self::Absent,
            b"NS" | b"EX" => Self::Conflict,
            b"VERSION" => Self::Version(text(&line["VERSION".len()..])),
            b"STAT" | b"END" => match lines(bytes)? {
                None => return Ok(None),
                Some((lines, length)) => {
                    end = length;
                    Self::Lines(lines)
                }
            },
            b"ERROR" | b"CLIENT_ERROR" | b"SERVER_ERROR" => Self::Error(text(line)),
            _ => return Err(garbage(line)),
        };
        Ok(Some((answer, end)))
    }
}

/// The first line without its end, and where the next one begins.
fn line(bytes: &[u8]) -> Result<Option<(&[u8], usize)>, Garbage> {
    let head = &bytes[..bytes.len().min(LONGEST_LINE)];
    match head.iter().position(|byte| *byte == b'\n') {
        Some(end) if end > 0 && head[end - 1] == b'\r' => Ok(Some((&head[..end - 1], end + 1))),
        Some(_) => Err(garbage(head)),
        None if head.len() == LONGEST_LINE => Err(garbage(head)),
        None => Ok(None),
    }
}

/// `STAT name value` up to `END`, and how many bytes they have.
#[allow(clippy::type_complexity, reason = "the pairs of one answer")]
fn lines(bytes: &[u8]) -> Result<Option<(Vec<(String, String)>, usize)>, Garbage> {
    let (mut found, mut at) = (Vec::new(), 0);
    while found.len() < MOST_LINES {
        let Some((line, length)) = line(&bytes[at..])? else {
            return Ok(None);
        };
        at += length;
        if line == b"END" {
            return Ok(Some((found, at)));
        }
        let line = text(line);
        let Some((name, value)) = line
            .strip_prefix("STAT ")
            .map(|stat| stat.split_once(' ').unwrap_or((stat, "")))
        else {
            return Err(Garbage(line));
        };
        found.push((name.to_owned(), value.to_owned()));
    }
    Err(garbage(bytes))
}

/// The number behind the flag `c`. The server tells 0 where nothing was written, or numbers are switched off.
fn cas<'a>(mut flags: impl Iterator<Item = &'a [u8]>) -> Option<u64> {
    let flag = flags.find(|flag| flag.first() == Some(&b'c'))?;
    number(&flag[1..]).filter(|cas| *cas != 0)
}

/// A number in decimal digits, at most 2⁶⁴ − 1.
pub(super) fn number(digits: &[u8]) -> Option<u64> {
    let is_one = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let digits = std::str::from_utf8(digits).ok().filter(|_| is_one)?;
    digits.parse().ok()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}

/// The beginning of what is no answer, for a message.
fn garbage(bytes: &[u8]) -> Garbage {
    Garbage(bytes[..bytes.len().min(60)].escape_ascii().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(cas: Option<u64>, bytes: &[u8]) -> Answer {
        let bytes = bytes.to_vec();
        Answer::Value { cas, bytes }
    }

    /// Bytes as a server of version 1.6.18 sends them.
    #[test]
    fn answers_are_read() {
        let settings = [("cas_enabled", "yes"), ("inter", "")];
        let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
        for (bytes, answer) in [
            (&b"VA 3 c15\r\na\nb\r\n"[..], value(Some(15), b"a\nb")),
            (b"VA 0 W c7\r\n\r\n", value(Some(7), b"")),
            (b"VA 2 t-1\r\n15\r\n", value(None, b"15")),
            (b"HD\r\n", Answer::Done { cas: None }),
            (b"HD c9\r\n", Answer::Done { cas: Some(9) }),
            (b"EN\r\n", Answer::Absent),
            (b"NF c0\r\n", Answer::Absent),
            // A conflict that carries what only success has.
            (b"EX c12\r\n", Answer::Conflict),
            (b"NS c0\r\n", Answer::Conflict),
            (b"VERSION 1.6.18\r\n", Answer::Version("1.6.18".to_owned())),
            (b"ERROR\r\n", Answer::Error("ERROR".to_owned())),
            (
                b"SERVER_ERROR object too large for cache\r\n",
                Answer::Error("SERVER_ERROR object too large for cache".to_owned()),
            ),
            (
                b"STAT cas_enabled yes\r\nSTAT inter \r\nEND\r\n",
                Answer::Lines(settings.to_vec()),
            ),
            (b"END\r\n", Answer::Lines(Vec::new())),
        ] {
            // However it is cut, it is read once its last byte is there; what follows is left.
            for end in 0..bytes.len() {
                assert_eq!(Answer::read(&bytes[..end]), Ok(None), "{end} of {bytes:?}");
            }
            let more = [bytes, b"EN\r\n"].concat();
            assert_eq!(Answer::read(&more), Ok(Some((answer, bytes.len()))));
        }
    }

    #[test]
    fn what_is_no_answer_is_garbage() {
        let long = vec![b'V'; LONGEST_LINE];
        for bytes in [
            &b"HTTP/1.1 400 Bad Request\r\n"[..],
            b"\n",
            b"HD\n",
            b"VA\r\n",
            b"VA x\r\n",
            b"VA -1\r\n",
            b"VA 99999999999999999999\r\n",
            b"VA 4294967296\r\n",
            b"VA 1\r\nabc",
            b"STAT a b\r\nHD\r\n",
            &long,
        ] {
            let read = Answer::read(bytes);
            assert!(
                read.is_err(),
                "{:?}: {read:?}",
                bytes.escape_ascii().to_string()
            );
        }
    }

    #[test]
    fn numbers_are_decimal_digits() {
        assert_eq!(number(b"18446744073709551615"), Some(u64::MAX));
        for digits in [
            &b"18446744073709551616"[..],
            b"",
            b"+1",
            b"-1",
            b"1 ",
            b"1e3",
        ] {
            assert_eq!(number(digits), None, "{digits:?}");
        }
    }
}
