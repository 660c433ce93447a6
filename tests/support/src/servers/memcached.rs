//! A memcached.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::SocketAddr,
    ops::Deref,
    time::Duration,
};

use super::{
    place::connect,
    process::{Program, Server},
};

const MEMCACHED: Program = Program {
    name: "memcached",
    package: "memcached",
};

const LIMIT: Duration = Duration::from_secs(5);

/// The options of a server.
#[derive(Clone, Debug, Default)]
pub struct MemcachedOptions(Vec<String>);

impl MemcachedOptions {
    /// Adds an argument of the command line. Later ones override earlier ones.
    pub fn argument(mut self, argument: &str) -> Self {
        self.0.push(argument.to_owned());
        self
    }

    /// Sets the memory for items, in megabytes.
    pub fn megabytes(self, amount: u32) -> Self {
        self.argument("-m").argument(&amount.to_string())
    }

    /// Rejects items that do not fit. The default is to evict the oldest item.
    pub fn no_eviction(self) -> Self {
        self.argument("-M")
    }

    /// Starts the server, and waits until it answers.
    pub fn start(self) -> Memcached {
        let server = Server::start(
            MEMCACHED,
            |port, _| {
                let port = port.to_string();
                // Root must choose a user; other users can pass `-u` without effect.
                let fixed = ["-l", "127.0.0.1", "-p", &port, "-U", "0", "-u", "root"];
                let fixed = fixed.iter().map(|&argument| argument.to_owned());
                fixed.chain(self.0.iter().cloned()).collect()
            },
            answers,
        );
        Memcached(server)
    }
}

/// Checks that the process `id`, and no other one, serves this address.
fn answers(address: SocketAddr, id: u32) -> Result<(), String> {
    let answer = ask(address, "stats", Duration::from_secs(1));
    let answer = answer.map_err(|error| error.to_string())?;
    let is_it = answer.lines().any(|line| line == format!("STAT pid {id}"));
    if is_it { Ok(()) } else { Err(answer) }
}

fn ask(address: SocketAddr, command: &str, limit: Duration) -> io::Result<String> {
    let mut stream = connect(address, limit)?;
    stream.write_all(format!("{command}\r\n").as_bytes())?;
    let mut stream = BufReader::new(stream);
    let mut answer = Vec::new();
    for _ in 0..100_000 {
        let mut line = String::new();
        stream.read_line(&mut line)?;
        // The lines of `lru_crawler metadump` end without a carriage return.
        if !line.ends_with('\n') {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        answer.extend_from_slice(line.as_bytes());
        let words: Vec<_> = line.split_ascii_whitespace().collect();
        // The values of `get` and of the meta commands follow their line, with that length.
        let length = match words[..] {
            ["VALUE", _, _, length, ..] | ["VA", length, ..] => length.parse::<usize>().ok(),
            _ => None,
        };
        if let Some(length) = length {
            let before = answer.len();
            answer.resize(before + length + 2, 0);
            stream.read_exact(&mut answer[before..])?;
        }
        let is_one_of_many = match words.first() {
            // `lru_crawler metadump` lists items as `key=…`.
            Some(first) => matches!(*first, "VALUE" | "STAT" | "ITEM") || first.starts_with("key="),
            None => false,
        };
        if !is_one_of_many {
            let text = String::from_utf8_lossy(&answer);
            return Ok(text.strip_suffix("\r\n").unwrap_or(&text).to_owned());
        }
    }
    Err(io::Error::other(
        "expected an answer of 100000 lines at most",
    ))
}

/// A running server, killed when dropped.
#[derive(Debug)]
pub struct Memcached(Server);

impl Deref for Memcached {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.0
    }
}

impl Memcached {
    /// Starts a memcached with the default options.
    pub fn start() -> Self {
        Self::options().start()
    }

    /// Returns options for a start.
    pub fn options() -> MemcachedOptions {
        MemcachedOptions::default()
    }

    /// Returns the answer to a command of the text protocol on a new connection, without the last
    /// line break.
    ///
    /// Data follows the command line: `"set k 0 0 5\r\nhello"`.
    ///
    /// # Panics
    ///
    /// If the server does not answer.
    pub fn command(&self, command: &str) -> String {
        let answer = self.ask(command, LIMIT);
        answer.unwrap_or_else(|error| panic!("{command} by {:?}: {error}", self.0))
    }

    /// Like [`command`](Self::command), with a limit for each network operation.
    pub fn ask(&self, command: &str, limit: Duration) -> io::Result<String> {
        ask(self.address(), command, limit)
    }
}
