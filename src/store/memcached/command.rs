//! What the server is asked, in its meta commands (memcached `protocol.txt`, "Meta commands").
//!
//! Flags are worked off in their order: one that makes something stands before one that tells of it.

use std::{borrow::Cow, fmt, time::Duration};

use super::{expiry, name};

/// Commands that go out together, one answer to each.
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

    /// How many answers will come.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// A command without a key.
    pub(super) fn plain(&mut self, line: &str) -> &mut Self {
        self.bytes.extend_from_slice(line.as_bytes());
        self.end()
    }

    /// Reads a value, and the number of its last write where `cas` says so.
    pub(super) fn get(&mut self, key: &[u8], cas: bool) -> &mut Self {
        self.begin("mg", key);
        self.bytes
            .extend_from_slice(if cas { b" v c" } else { b" v" });
        self.end()
    }

    /// Writes a value, and tells the number of this write.
    pub(super) fn set(
        &mut self,
        key: &[u8],
        value: &[u8],
        expected: Expected,
        keep: Duration,
    ) -> &mut Self {
        let expiry = expiry::of(keep, self.now);
        self.begin("ms", key);
        self.write(format_args!(" {}{expected} T{expiry} c\r\n", value.len()));
        self.bytes.extend_from_slice(value);
        self.end()
    }

    /// Removes a value.
    pub(super) fn delete(&mut self, key: &[u8], expected: Expected) -> &mut Self {
        self.begin("md", key);
        self.write(format_args!("{expected}"));
        self.end()
    }

    /// Adds to a number, which is made in the same step where there is none, and tells what it comes to.
    pub(super) fn add(&mut self, key: &[u8], amount: u64, keep: Duration) -> &mut Self {
        let expiry = expiry::of(keep, self.now);
        self.begin("ma", key);
        self.write(format_args!(" N{expiry} J{amount} D{amount} v"));
        self.end()
    }

    /// Takes from a number, to 0 at the lowest; makes none.
    pub(super) fn subtract(&mut self, key: &[u8], amount: u64) -> &mut Self {
        self.begin("ma", key);
        self.write(format_args!(" MD D{amount}"));
        self.end()
    }

    fn begin(&mut self, command: &str, key: &[u8]) {
        let name: Cow<'_, [u8]> = name::of(key);
        self.bytes.extend_from_slice(command.as_bytes());
        self.bytes.push(b' ');
        self.bytes.extend_from_slice(&name);
    }

    fn write(&mut self, what: fmt::Arguments<'_>) {
        // Writing to memory cannot fail.
        let _ = std::io::Write::write_fmt(self.bytes, what);
    }

    fn end(&mut self) -> &mut Self {
        self.bytes.extend_from_slice(b"\r\n");
        self.count += 1;
        self
    }
}

/// What must be there for a write to take place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    Anything,
    Nothing,
    /// What the write of that number left.
    Write(u64),
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Anything => Ok(()),
            Self::Nothing => f.write_str(" ME"),
            Self::Write(cas) => write!(f, " C{cas}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_as_they_go_out() {
        let mut bytes = Vec::new();
        let now = || 1_800_000_000;
        let mut commands = Commands::new(&mut bytes, &now);
        let (short, long) = (Duration::from_secs(9), Duration::from_secs(86_400 * 31));
        commands
            .get(b"k", true)
            .get(b"k", false)
            .set(b"k", b"a\r\n", Expected::Nothing, short)
            .set(b"k", b"", Expected::Write(7), long)
            .delete(b"k", Expected::Write(8))
            .delete(b"k", Expected::Anything)
            .add(b"k", 5, short)
            .subtract(b"k", 5)
            .plain("version");
        assert_eq!(commands.count(), 9);
        let text = "mg k v c\r\nmg k v\r\nms k 3 ME T11 c\r\na\r\n\r\nms k 0 C7 T1802678402 c\r\n\r\n\
                    md k C8\r\nmd k\r\nma k N11 J5 D5 v\r\nma k MD D5\r\nversion\r\n";
        assert_eq!(String::from_utf8(bytes).unwrap(), text);
    }

    #[test]
    fn no_key_can_hold_a_command() {
        let mut bytes = Vec::new();
        let now = || 0;
        Commands::new(&mut bytes, &now).get(b"k\r\nflush_all\r\n", false);
        assert_eq!(bytes.iter().filter(|byte| **byte == b'\n').count(), 1);
    }
}
