//! The options of a Redis or Valkey.

use std::path::Path;

use super::super::{
    place,
    process::{Program, Server},
};
use super::{Redis, answers};

const REDIS: Program = Program {
    name: "redis-server",
    package: "redis-server",
};
const VALKEY: Program = Program {
    name: "valkey-server",
    package: "valkey-server (from Debian 13 on)",
};

/// The options of a server. The default is no persistence and no eviction.
#[derive(Clone, Debug)]
pub struct RedisOptions {
    program: Program,
    /// The settings `(name, value)`. Later ones override earlier ones.
    settings: Vec<(String, String)>,
    password: Option<String>,
}

impl RedisOptions {
    /// Returns the defaults of the server itself.
    pub fn bare() -> Self {
        Self {
            program: REDIS,
            settings: Vec::new(),
            password: None,
        }
    }

    pub(super) fn new() -> Self {
        Self::bare()
            .set("bind", "127.0.0.1")
            .set("save", "")
            .set("appendonly", "no")
            .set("maxmemory-policy", "noeviction")
            .set("enable-debug-command", "local")
            // The default of five seconds waits for more replicas.
            .set("repl-diskless-sync-delay", "0")
    }

    /// Selects Valkey instead of Redis, or returns `None` if it is missing.
    ///
    /// # Panics
    ///
    /// If it is missing although the tests run under `test.sh`, which provides it.
    pub fn valkey(mut self) -> Option<Self> {
        self.program = VALKEY;
        let there = place::program(VALKEY.name).is_some();
        place::required(VALKEY.name, there);
        there.then_some(self)
    }

    /// Adds a setting of `redis.conf`.
    pub fn set(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets the memory for data, like `"2mb"`. Data that does not fit is rejected.
    pub fn maxmemory(self, amount: &str) -> Self {
        self.set("maxmemory", amount)
    }

    /// Writes are on the disk before they are answered, so a restart loses nothing.
    pub fn durable(self) -> Self {
        self.set("appendonly", "yes").set("appendfsync", "always")
    }

    /// Makes the server a replica of `master`.
    pub fn replica_of(self, master: &Redis) -> Self {
        let options = match &master.password {
            Some(password) => self.set("masterauth", password),
            None => self,
        };
        options.set("replicaof", &format!("127.0.0.1 {}", master.port()))
    }

    /// Sets the password that clients must send.
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self.set("requirepass", password)
    }

    /// Starts the server, and waits until it answers.
    pub fn start(self) -> Redis {
        self.start_as(|_| Vec::new())
    }

    /// Starts the server with these arguments, which depend on the folder, before the settings.
    pub fn start_as(self, first: impl Fn(&Path) -> Vec<String>) -> Redis {
        let arguments = |port: u16, folder: &Path| {
            let mut arguments = first(folder);
            arguments.extend(["--port".to_owned(), port.to_string()]);
            for (name, value) in &self.settings {
                // A value of several words is several arguments. An empty value is one argument.
                arguments.push(format!("--{name}"));
                arguments.extend(value.split(' ').map(str::to_owned));
            }
            arguments
        };
        let password = self.password.clone();
        let server = Server::start(self.program, arguments, move |address, id| {
            answers(address, id, password.as_deref())
        });
        let password = self.password;
        Redis { server, password }
    }
}
