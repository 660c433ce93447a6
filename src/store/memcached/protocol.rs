//! Encodes meta commands of memcached and parses their responses (memcached `protocol.txt`, "Meta
//! commands").
//!
//! The server processes flags in order, so a flag that creates a value comes before one that
//! returns it.

use std::{borrow::Cow, fmt, time::Duration};

use crate::store::StoreError;

/// A batch of encoded commands. Each method appends one command, and the server sends one response
/// to each.
pub(super) struct Commands<'a> {
    bytes: &'a mut Vec<u8>,
    /// The server's Unix time in seconds.
    now: &'a dyn Fn() -> u64,
    count: usize,
}

impl<'a> Commands<'a> {
    pub(super) fn new(bytes: &'a mut Vec<u8>, now: &'a dyn Fn() -> u64) -> Self {
        Self {
            bytes,
            now,
            count: 0,
        }
    }

    /// Returns the number of expected responses.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Adds a command without a key.
    pub(super) fn plain(&mut self, line: &str) -> &mut Self {
        self.bytes.extend_from_slice(line.as_bytes());
        self.end()
    }

    /// Reads a value and its cas unique.
    pub(super) fn get(&mut self, key: &[u8]) -> &mut Self {
        self.begin("mg", key);
        self.bytes.extend_from_slice(b" v c");
        self.end()
    }

    /// Writes a value, and returns its cas unique.
    pub(super) fn set(
        &mut self,
        key: &[u8],
        value: &[u8],
        precondition: Precondition,
        keep: Duration,
    ) -> &mut Self {
        let expiry = expiry(keep, self.now);
        self.begin("ms", key);
        self.write(format_args!(
            " {}{precondition} T{expiry} c\r\n",
            value.len()
        ));
        self.bytes.extend_from_slice(value);
        self.end()
    }

    /// Removes a value.
    pub(super) fn delete(&mut self, key: &[u8], precondition: Precondition) -> &mut Self {
        self.begin("md", key);
        self.write(format_args!("{precondition}"));
        self.end()
    }

    /// Adds to a counter, which is created if absent, and returns the total.
    pub(super) fn add(&mut self, key: &[u8], amount: u64, keep: Duration) -> &mut Self {
        let expiry = expiry(keep, self.now);
        self.begin("ma", key);
        self.write(format_args!(" N{expiry} J{amount} D{amount} v"));
        self.end()
    }

    /// Subtracts from a counter, down to 0; does not create it.
    pub(super) fn subtract(&mut self, key: &[u8], amount: u64) -> &mut Self {
        self.begin("ma", key);
        self.write(format_args!(" MD D{amount}"));
        self.end()
    }

    fn begin(&mut self, command: &str, key: &[u8]) {
        let name: Cow<'_, [u8]> = wire_key(key);
        self.bytes.extend_from_slice(command.as_bytes());
        self.bytes.push(b' ');
        self.bytes.extend_from_slice(&name);
    }

    fn write(&mut self, arguments: fmt::Arguments<'_>) {
        // Writing to memory cannot fail.
        let _ = std::io::Write::write_fmt(self.bytes, arguments);
    }

    fn end(&mut self) -> &mut Self {
        self.bytes.extend_from_slice(b"\r\n");
        self.count += 1;
        self
    }
}

/// The condition of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Precondition {
    /// No condition.
    None,
    /// The key has no value.
    Absent,
    /// The value has this cas unique.
    Unchanged(u64),
}

impl fmt::Display for Precondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => Ok(()),
            Self::Absent => f.write_str(" ME"),
            Self::Unchanged(cas) => write!(f, " C{cas}"),
        }
    }
}

/// The maximum length of a key in bytes (memcached `protocol.txt`, "Keys").
const MAX_LENGTH: usize = 250;

/// The first byte of digested keys. A key that starts with it is digested too, so that it cannot
/// equal the digest of another key.
const DIGEST_MARK: u8 = b'~';

/// Returns the key in a form that memcached accepts.
///
/// A key is replaced by `~` and 128 bits of its BLAKE3 digest in hexadecimal digits if it is empty,
/// longer than 250 bytes, starts with `~`, or contains spaces, control characters or bytes beyond
/// ASCII.
fn wire_key(key: &[u8]) -> Cow<'_, [u8]> {
    let is_plain = !key.is_empty()
        && key.len() <= MAX_LENGTH
        && key[0] != DIGEST_MARK
        // No early exit, so that the loop is vectorized.
        && key.iter().fold(true, |all, byte| all & byte.is_ascii_graphic());
    if is_plain {
        return Cow::Borrowed(key);
    }
    let digest = blake3::hash(key).to_hex();
    let mut name = Vec::with_capacity(33);
    name.push(DIGEST_MARK);
    name.extend_from_slice(&digest.as_bytes()[..32]);
    Cow::Owned(name)
}

/// The longest relative expiry in seconds, 30 days. The server reads a greater number as a Unix
/// time (memcached `protocol.txt`, "Expiration times").
const MAX_RELATIVE: u64 = 60 * 60 * 24 * 30;

/// The latest expiry date in Unix seconds: servers parse it as a signed 32-bit number.
const MAX_DATE: u64 = i32::MAX as u64;

/// Returns the expiry of a value that must be kept for `keep`, in the server's format; 0 means
/// never.
///
/// The time is rounded up to whole seconds, plus two: the server's clock ticks in seconds, the
/// current second may be almost over, and the tick may be late. `now` returns the server's Unix
/// time in seconds, not less than the true one. A value that must be kept beyond the latest date
/// does not expire.
fn expiry(keep: Duration, now: impl FnOnce() -> u64) -> u64 {
    let up = u64::from(keep.subsec_nanos() != 0);
    let seconds = keep.as_secs().saturating_add(up).saturating_add(2);
    if seconds <= MAX_RELATIVE {
        return seconds;
    }
    let date = now().saturating_add(seconds);
    if date <= MAX_DATE { date } else { 0 }
}

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
    /// `STAT` lines up to `END`: the names and values that `stats` reports.
    Lines(Vec<(String, String)>),
    /// `ERROR`, `CLIENT_ERROR`, `SERVER_ERROR`: the whole line.
    Error(String),
}

/// Bytes that are not a response. The rest of the stream cannot be parsed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ProtocolError(pub(super) String);

/// The maximum length of a line in bytes. Lines of `stats` have at most a hundred.
const MAX_LINE: usize = 8 * 1024;
/// The maximum length of a value in bytes, above the largest item of any server (`-I`).
const MAX_VALUE: usize = 1 << 30;
/// The maximum number of lines of `stats`, many times the number that `stats settings` returns.
const MAX_LINES: usize = 10_000;

impl Response {
    /// Parses the first response; returns it with its length in bytes, or `None` if it is not
    /// complete yet.
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
            // The first releases with meta commands send `OK`.
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

/// Returns the cas unique, the number after the flag `c`. `None` if it is 0: nothing was written,
/// or the server runs with `-C`.
fn cas<'a>(mut flags: impl Iterator<Item = &'a [u8]>) -> Option<u64> {
    let flag = flags.find(|flag| flag.first() == Some(&b'c'))?;
    number(&flag[1..]).filter(|cas| *cas != 0)
}

/// Parses decimal digits only, up to 2⁶⁴ − 1.
pub(super) fn number(digits: &[u8]) -> Option<u64> {
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let digits = std::str::from_utf8(digits).ok().filter(|_| is_number)?;
    digits.parse().ok()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}

/// Returns an error that quotes the first 60 bytes.
fn protocol_error(bytes: &[u8]) -> ProtocolError {
    ProtocolError(bytes[..bytes.len().min(60)].escape_ascii().to_string())
}

/// The response to an increment or decrement of a value that is not a number.
pub(super) const NOT_A_NUMBER: &str =
    "CLIENT_ERROR cannot increment or decrement non-numeric value";

/// The response to a write whose value is too large; the server reads and discards the value.
pub(super) const TOO_LARGE: &str = "SERVER_ERROR object too large";

/// Returns `true` if the server reports that it is out of memory. The text differs between
/// commands.
pub(super) fn is_out_of_memory(line: &str) -> bool {
    line.starts_with("SERVER_ERROR") && line.to_ascii_lowercase().contains("out of memory")
}

/// Converts an unexpected response, or a missing one, into an error that says what to do.
pub(super) fn unexpected(response: Option<&Response>) -> StoreError {
    let Some(Response::Error(line)) = response else {
        return StoreError::other(format!(
            "memcached answered {response:?}: expected a response to the command that was sent; check that memcached \
             1.6 or later listens on that port"
        ));
    };
    let help = if line.starts_with(TOO_LARGE) {
        return StoreError::unsupported(format!(
            "memcached answered {line:?}: expected a state that fits into an item; start it with a larger -I, or choose a rule with \
             smaller states"
        ));
    } else if is_out_of_memory(line) {
        let text = format!(
            "memcached answered {line:?}: expected room for a state; give it more memory (-m), or let it evict (without -M)"
        );
        // Without the value that was read, no decision is possible, not even a refusal.
        return match line.contains("get response") {
            true => StoreError::other(text),
            false => StoreError::unwritten(text),
        };
    } else if line.starts_with("ERROR Too many open connections") {
        return StoreError::unavailable(format!(
            "memcached answered {line:?}: expected it to accept one more connection; raise its limit (-c)"
        ));
    } else {
        "; check that memcached 1.6 or later listens on that port"
    };
    StoreError::other(format!(
        "memcached answered {line:?} where no error was expected{help}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_encoded() {
        let mut bytes = Vec::new();
        let now = || 1_800_000_000;
        let mut commands = Commands::new(&mut bytes, &now);
        let (short, long) = (Duration::from_secs(9), Duration::from_secs(86_400 * 31));
        commands
            .get(b"k")
            .set(b"k", b"a\r\n", Precondition::Absent, short)
            .set(b"k", b"", Precondition::Unchanged(7), long)
            .delete(b"k", Precondition::Unchanged(8))
            .delete(b"k", Precondition::None)
            .add(b"k", 5, short)
            .subtract(b"k", 5)
            .plain("version");
        assert_eq!(commands.count(), 8);
        let text = "mg k v c\r\nms k 3 ME T11 c\r\na\r\n\r\nms k 0 C7 T1802678402 c\r\n\r\n\
                    md k C8\r\nmd k\r\nma k N11 J5 D5 v\r\nma k MD D5\r\nversion\r\n";
        assert_eq!(String::from_utf8(bytes).unwrap(), text);
    }

    #[test]
    fn no_key_can_hold_a_command() {
        let mut bytes = Vec::new();
        let now = || 0;
        Commands::new(&mut bytes, &now).get(b"k\r\nflush_all\r\n");
        assert_eq!(bytes.iter().filter(|byte| **byte == b'\n').count(), 1);
    }

    fn is_digested(key: &[u8]) -> bool {
        let name = wire_key(key);
        assert!(name.len() <= MAX_LENGTH && name.iter().all(u8::is_ascii_graphic));
        name != key
    }

    #[test]
    fn valid_keys_are_unchanged() {
        assert!(!is_digested(b"tollgate:2:{a=b}:api"));
        assert!(!is_digested(&[b'k'; 250]));
        for key in [
            &[b'k'; 251][..],
            b"",
            b"a b",
            b"a\r\nflush_all",
            b"a\0b",
            b"\x7f",
            b"M\xc3\xbcller",
        ] {
            assert!(is_digested(key), "{key:?}");
        }
    }

    /// No key equals the digest of another one.
    #[test]
    fn keys_do_not_collide_with_digests() {
        let long = [b'k'; 300];
        let name = wire_key(&long).into_owned();
        assert_eq!(name.len(), 33);
        assert_ne!(wire_key(&name), name);
        assert_ne!(wire_key(&[b'k'; 301]), name);
    }

    const DAY: Duration = Duration::from_secs(86_400);
    const NOW: u64 = 1_800_000_000;

    fn at(keep: Duration) -> u64 {
        expiry(keep, || NOW)
    }

    #[test]
    fn seconds_are_rounded_up() {
        assert_eq!(at(Duration::from_nanos(1)), 3);
        assert_eq!(at(Duration::from_secs(1)), 3);
        assert_eq!(at(Duration::from_millis(1001)), 4);
        assert_eq!(at(DAY), 86_402);
    }

    #[test]
    fn beyond_thirty_days_it_is_a_date() {
        assert_eq!(at(30 * DAY - Duration::from_secs(2)), 2_592_000);
        assert_eq!(at(30 * DAY - Duration::from_secs(1)), NOW + 2_592_001);
        assert_eq!(at(365 * DAY), NOW + 365 * 86_400 + 2);
    }

    #[test]
    fn beyond_the_latest_date_values_do_not_expire() {
        let last = Duration::from_secs(MAX_DATE - NOW - 2);
        assert_eq!(at(last), MAX_DATE);
        assert_eq!(at(last + Duration::from_nanos(1)), 0);
        assert_eq!(at(Duration::MAX), 0);
    }

    fn value(cas: Option<u64>, bytes: &[u8]) -> Response {
        let bytes = bytes.to_vec();
        Response::Value { cas, bytes }
    }

    /// Responses as memcached 1.6.18 sends them.
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
            // A conflict that carries the cas flag of a success.
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
            // A response is parsed once its last byte has arrived, and nothing after it is
            // consumed.
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

    #[test]
    fn a_value_that_is_too_large_concerns_its_key_alone_and_a_full_server_writes_alone() {
        for (line, is_unsupported, is_unwritten) in [
            ("SERVER_ERROR object too large for cache", true, false),
            ("SERVER_ERROR out of memory storing object", false, true),
            (
                "SERVER_ERROR out of memory writing get response",
                false,
                false,
            ),
            ("ERROR Too many open connections", false, false),
            ("CLIENT_ERROR bad data chunk", false, false),
        ] {
            let error = unexpected(Some(&Response::Error(line.to_owned())));
            assert_eq!(error.is_unsupported(), is_unsupported, "{line}");
            assert_eq!(error.is_unwritten(), is_unwritten, "{line}");
            assert!(error.to_string().contains(line), "{error}");
        }
        assert!(!unexpected(None).is_unsupported());
    }
}
