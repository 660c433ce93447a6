//! A single Redis or Valkey.

mod options;

use std::{io, net::SocketAddr, ops::Deref, thread, time::Duration};

pub use self::options::RedisOptions;
use super::{
    place,
    process::Server,
    resp::{Reply, Resp},
    wait::wait_until,
};

const LIMIT: Duration = Duration::from_secs(5);

/// A running server, killed when dropped.
#[derive(Debug)]
pub struct Redis {
    server: Server,
    password: Option<String>,
}

/// Test programs that write only through the store. In them, every remaining key has an expiry.
const ALL_EXPIRES: [&str; 2] = ["quickstart", "redis"];

impl Drop for Redis {
    /// # Panics
    ///
    /// If a store has left a key without an expiry.
    fn drop(&mut self) {
        let is_checked = ALL_EXPIRES.contains(&place::test_program().as_str());
        if !is_checked || thread::panicking() || !self.is_running() {
            return;
        }
        // A paused or loading server does not answer, and a sentinel has no keys.
        let Ok(mut connection) = self.connect() else {
            return;
        };
        if !matches!(connection.call(&["DBSIZE"]), Ok(Reply::Number(_))) {
            return;
        }
        let all = self.command(&["INFO", "keyspace"]);
        let lines = all.lines().filter_map(|line| line.strip_prefix("db"));
        for (database, _) in lines.filter_map(|line| line.split_once(':')) {
            connection.call(&["SELECT", database]).unwrap();
            for key in keys(&mut connection) {
                let left = connection.call(&[&b"PTTL"[..], &key[..]]).unwrap();
                let key = key.escape_ascii();
                assert_ne!(left, Reply::Number(-1), "{key} never expires");
            }
        }
    }
}

impl Deref for Redis {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

impl Redis {
    /// Starts a Redis with the default options.
    pub fn start() -> Self {
        Self::options().start()
    }

    /// Starts a Valkey, or returns `None` if it is missing.
    pub fn start_valkey() -> Option<Self> {
        Self::options().valkey().map(RedisOptions::start)
    }

    /// Returns options for a start.
    pub fn options() -> RedisOptions {
        RedisOptions::new()
    }

    /// Returns `redis://127.0.0.1:port`, with the password if there is one.
    pub fn url(&self) -> String {
        let address = self.address();
        match &self.password {
            Some(password) => format!("redis://:{password}@{address}"),
            None => format!("redis://{address}"),
        }
    }

    /// Opens an authenticated connection for several commands.
    pub fn connect(&self) -> io::Result<Resp> {
        connect(self.address(), self.password.as_deref(), LIMIT)
    }

    /// Returns the answer to a command on a new connection. An error is an answer.
    pub fn ask(&self, command: &[impl AsRef<[u8]>]) -> io::Result<Reply> {
        self.connect()?.call(command)
    }

    /// Like [`ask`](Self::ask), for a command that must succeed.
    ///
    /// # Panics
    ///
    /// If the server does not answer, or answers with an error.
    pub fn reply(&self, command: &[impl AsRef<[u8]>]) -> Reply {
        let failure = match self.ask(command) {
            Ok(Reply::Error(error)) => error,
            Ok(reply) => return reply,
            Err(error) => error.to_string(),
        };
        let words = command
            .iter()
            .map(|word| word.as_ref().escape_ascii().to_string());
        let words: Vec<_> = words.collect();
        panic!("{:?}, {}: {failure}", self.server, words.join(" "))
    }

    /// Returns the answer as text, one member of a list per line.
    ///
    /// # Panics
    ///
    /// Like [`reply`](Self::reply).
    pub fn command(&self, command: &[impl AsRef<[u8]>]) -> String {
        self.reply(command).to_string()
    }

    /// Returns the value of a line `name:value` in a section of `INFO`.
    ///
    /// # Panics
    ///
    /// If there is no such line.
    pub fn info(&self, section: &str, name: &str) -> String {
        let text = self.command(&["INFO", section]);
        let value = text
            .lines()
            .filter_map(|line| line.split_once(':'))
            .find_map(|(found, value)| (found == name).then(|| value.to_owned()));
        value.unwrap_or_else(|| panic!("expected {name} in INFO {section}, found: {text}"))
    }

    /// Waits until [`info`](Self::info) is this value.
    ///
    /// # Panics
    ///
    /// If it is not within the limit.
    pub fn wait_for_info(&self, section: &str, name: &str, value: &str, limit: Duration) {
        wait_until(name, limit, || match self.info(section, name) {
            found if found == value => Ok(()),
            other => Err(other),
        });
    }

    /// Returns all keys of the first database, by `SCAN`, sorted.
    pub fn keys(&self) -> Vec<Vec<u8>> {
        keys(&mut self.connect().unwrap())
    }
}

fn keys(connection: &mut Resp) -> Vec<Vec<u8>> {
    let (mut keys, mut cursor) = (Vec::new(), "0".to_owned());
    for _ in 0..1_000_000 {
        let answer = connection.call(&["SCAN", &cursor, "COUNT", "1000"]);
        let Reply::List(parts) = answer.unwrap() else {
            panic!("expected a cursor and keys from SCAN");
        };
        let [next, page] = <[Reply; 2]>::try_from(parts).unwrap();
        keys.extend(page.into_members());
        cursor = next.to_string();
        if cursor == "0" {
            keys.sort();
            // A scan may return a key twice.
            keys.dedup();
            return keys;
        }
    }
    panic!("expected SCAN to end, at cursor {cursor}");
}

fn connect(address: SocketAddr, password: Option<&str>, limit: Duration) -> io::Result<Resp> {
    let mut connection = Resp::connect(address, limit)?;
    if let Some(password) = password
        && let Reply::Error(error) = connection.call(&["AUTH", password])?
    {
        return Err(io::Error::other(error));
    }
    Ok(connection)
}

/// Checks that the process `id`, and no other one, serves this address.
fn answers(address: SocketAddr, id: u32, password: Option<&str>) -> Result<(), String> {
    let ask = || -> io::Result<(String, Reply)> {
        let mut connection = connect(address, password, Duration::from_secs(1))?;
        let server = connection.call(&["INFO", "server"])?.to_string();
        Ok((server, connection.call(&["PING"])?))
    };
    let (server, ping) = ask().map_err(|error| error.to_string())?;
    if !server.contains(&format!("process_id:{id}\r\n")) {
        return Err(format!("somebody else answers: {server}"));
    }
    match ping {
        Reply::Status(pong) if pong == "PONG" => Ok(()),
        // It may still be loading.
        other => Err(other.to_string()),
    }
}
