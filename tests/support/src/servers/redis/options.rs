//! The options with which a Redis or Valkey is started.

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

/// The options of a server: by default without persistence or eviction.
#[derive(Clone, Debug)]
pub struct RedisOptions {
    program: Program,
    /// The settings `(name, value)`; later ones win.
    settings: Vec<(String, String)>,
    password: Option<String>,
}

impl RedisOptions {
    /// The defaults of the server itself.
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
            // By default five seconds, for more replicas to come.
            .set("repl-diskless-sync-delay", "0")
    }

    /// Valkey instead of Redis; `None` where there is none.
    ///
    /// # Panics
    ///
    /// If there is none and the tests run under `test.sh`, which provides one.
    pub fn valkey(mut self) -> Option<Self> {
        self.program = VALKEY;
        let there = place::program(VALKEY.name).is_some();
        place::required(VALKEY.name, there);
        there.then_some(self)
    }

    /// A setting as in `redis.conf`.
    pub fn set(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The memory that data may take, like `"2mb"`; what does not fit is refused.
    pub fn maxmemory(self, amount: &str) -> Self {
        self.set("maxmemory", amount)
    }

    /// Every write is on the disk before it is answered: a restart loses nothing.
    pub fn durable(self) -> Self {
        self.set("appendonly", "yes").set("appendfsync", "always")
    }

    /// A replica of that one.
    pub fn replica_of(self, master: &Redis) -> Self {
        let options = match &master.password {
            Some(password) => self.set("masterauth", password),
            None => self,
        };
        options.set("replicaof", &format!("127.0.0.1 {}", master.port()))
    }

    /// The password that every client must give.
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self.set("requirepass", password)
    }

    /// Starts it and waits until it answers.
    pub fn start(self) -> Redis {
        self.start_as(|_| Vec::new())
    }

    /// Starts it with these arguments, which depend on the folder, before the settings.
    pub fn start_as(self, first: impl Fn(&Path) -> Vec<String>) -> Redis {
        let arguments = |port: u16, folder: &Path| {
            let mut arguments = first(folder);
            arguments.extend(["--port".to_owned(), port.to_string()]);
            for (name, value) in &self.settings {
                // A value of several words is several arguments; an empty one is one.
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
