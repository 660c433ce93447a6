//! Parses the responses of the server.

/// The response to one command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Response {
    /// `VA`: a value, with its cas unique if the command requested it.
    Value { cas: Option<u64>, bytes: Vec<u8> },
    /// `HD`: success, with the new cas unique if the command requested it.
    Done { cas: Option<u64> },
    /// `EN` to a read, `NF` to a write: the key has no value.
    Absent,
    /// `NS` or `EX`: the key has another value.
    Conflict,
    /// `VERSION`: the version of the server.
    Version(String),
    /// The lines of `stats`.
    Lines(Vec<(String, String)>),
    /// `ERROR`, `CLIENT_ERROR`, `SERVER_ERROR`: the whole line.
    Error(String),
}

/// Bytes that are not a response. The rest of the stream cannot be parsed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ProtocolError(pub(super) String);

/// Limit of a line in bytes; those of `stats` have at most a hundred.
const MAX_LINE: usize = 8 * 1024;
/// Limit of a value in bytes; above the largest item of any server (`-I`).
const MAX_VALUE: usize = 1 << 30;
/// Limit of the lines of `stats`; many times those of `stats settings`.
const MAX_LINES: usize = 10_000;

impl Response {
    /// Parses the first response; returns it with its length in bytes, or `None` if it is not complete yet.
    pub(super) fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>, ProtocolError> {
        let Some((line, mut end)) = line(bytes)? else {
            return Ok(None);
        };
        let mut words = line.split(|byte| *byte == b' ');
        let response = match words.next().unwrap_or_default() {
            b"VA" => {
                let length = words.next().and_then(number);
                let Some(length) = length.filter(|length| *length <= MAX_VALUE as u64) else {
                    return Err(protocol_error(line));
                };
                let length = length as usize;
                let Some(rest) = bytes.get(end..end + length + 2) else {
                    return Ok(None);
                };
                if !rest.ends_with(b"\r\n") {
                    return Err(protocol_error(line));
                }
                end += length + 2;
                Self::Value {
                    cas: cas(words),
                    bytes: rest[..length].to_vec(),
                }
            }
            // `OK` in the first releases with these commands.
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
            _ => return Err(protocol_error(line)),
        };
        Ok(Some((response, end)))
    }
}

/// Returns the first line without its end, and the offset of the next one.
fn line(bytes: &[u8]) -> Result<Option<(&[u8], usize)>, ProtocolError> {
    let head = &bytes[..bytes.len().min(MAX_LINE)];
    match head.iter().position(|byte| *byte == b'\n') {
        Some(end) if end > 0 && head[end - 1] == b'\r' => Ok(Some((&head[..end - 1], end + 1))),
        Some(_) => Err(protocol_error(head)),
        None if head.len() == MAX_LINE => Err(protocol_error(head)),
        None => Ok(None),
    }
}

/// Parses `STAT name value` lines up to `END`; returns them with their length in bytes.
#[allow(clippy::type_complexity, reason = "the pairs of one response")]
fn lines(bytes: &[u8]) -> Result<Option<(Vec<(String, String)>, usize)>, ProtocolError> {
    let (mut found, mut at) = (Vec::new(), 0);
    while found.len() < MAX_LINES {
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
            return Err(ProtocolError(line));
        };
        found.push((name.to_owned(), value.to_owned()));
    }
    Err(protocol_error(bytes))
}

/// Returns the cas unique, the number after the flag `c`. It is 0 if nothing was written, or with `-C`.
fn cas<'a>(mut flags: impl Iterator<Item = &'a [u8]>) -> Option<u64> {
    let flag = flags.find(|flag| flag.first() == Some(&b'c'))?;
    number(&flag[1..]).filter(|cas| *cas != 0)
}

/// Parses decimal digits, up to 2⁶⁴ − 1.
pub(super) fn number(digits: &[u8]) -> Option<u64> {
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let digits = std::str::from_utf8(digits).ok().filter(|_| is_number)?;
    digits.parse().ok()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}

/// Returns an error with the first 60 bytes.
fn protocol_error(bytes: &[u8]) -> ProtocolError {
    ProtocolError(bytes[..bytes.len().min(60)].escape_ascii().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(cas: Option<u64>, bytes: &[u8]) -> Response {
        let bytes = bytes.to_vec();
        Response::Value { cas, bytes }
    }

    /// Bytes as a server of version 1.6.18 sends them.
    #[test]
    fn responses_are_parsed() {
        let settings = [("cas_enabled", "yes"), ("inter", "")];
        let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
        for (bytes, response) in [
            (&b"VA 3 c15\r\na\nb\r\n"[..], value(Some(15), b"a\nb")),
            (b"VA 0 W c7\r\n\r\n", value(Some(7), b"")),
            (b"VA 2 t-1\r\n15\r\n", value(None, b"15")),
            (b"HD\r\n", Response::Done { cas: None }),
            (b"HD c9\r\n", Response::Done { cas: Some(9) }),
            (b"EN\r\n", Response::Absent),
            (b"NF c0\r\n", Response::Absent),
            // A conflict with a flag that only success has.
            (b"EX c12\r\n", Response::Conflict),
            (b"NS c0\r\n", Response::Conflict),
            (
                b"VERSION 1.6.18\r\n",
                Response::Version("1.6.18".to_owned()),
            ),
            (b"ERROR\r\n", Response::Error("ERROR".to_owned())),
            (
                b"SERVER_ERROR object too large for cache\r\n",
                Response::Error("SERVER_ERROR object too large for cache".to_owned()),
            ),
            (
                b"STAT cas_enabled yes\r\nSTAT inter \r\nEND\r\n",
                Response::Lines(settings.to_vec()),
            ),
            (b"END\r\n", Response::Lines(Vec::new())),
        ] {
            // A response is parsed once its last byte has arrived, and nothing after it is consumed.
            for end in 0..bytes.len() {
                assert_eq!(
                    Response::parse(&bytes[..end]),
                    Ok(None),
                    "{end} of {bytes:?}"
                );
            }
            let more = [bytes, b"EN\r\n"].concat();
            assert_eq!(Response::parse(&more), Ok(Some((response, bytes.len()))));
        }
    }

    #[test]
    fn other_bytes_are_a_protocol_error() {
        let long = vec![b'V'; MAX_LINE];
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
            let parsed = Response::parse(bytes);
            assert!(
                parsed.is_err(),
                "{:?}: {parsed:?}",
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
