//! Meta commands (memcached `protocol.txt`, "Meta commands").
//!
//! The server processes flags in order, so a flag that creates a value comes before one that returns it.

use std::{borrow::Cow, fmt, time::Duration};

use super::{expiry::expiry, wire_key::wire_key};

/// Commands that are sent together, with one response each.
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

    /// Reads a value, with its cas unique if `cas` is true.
    pub(super) fn get(&mut self, key: &[u8], cas: bool) -> &mut Self {
        self.begin("mg", key);
        self.bytes
            .extend_from_slice(if cas { b" v c" } else { b" v" });
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

    /// Adds to a counter, which is created if necessary, and returns the total.
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

/// The condition under which a write takes place.
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
            .get(b"k", true)
            .get(b"k", false)
            .set(b"k", b"a\r\n", Precondition::Absent, short)
            .set(b"k", b"", Precondition::Unchanged(7), long)
            .delete(b"k", Precondition::Unchanged(8))
            .delete(b"k", Precondition::None)
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
