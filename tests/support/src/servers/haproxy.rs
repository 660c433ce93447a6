//! An HAProxy.

use std::{
    fs,
    io::{self, Read, Write},
    net::SocketAddr,
    ops::Deref,
    path::Path,
    time::Duration,
};

use super::{
    place::{connect, free_port},
    process::{Program, Server},
    wait::wait_until,
};

const HAPROXY: Program = Program {
    name: "haproxy",
    package: "haproxy",
};

/// A running master process with its worker, killed when dropped.
#[derive(Debug)]
pub struct Haproxy {
    server: Server,
    commands: SocketAddr,
}

impl Deref for Haproxy {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

impl Haproxy {
    /// Starts an HAProxy, and waits until it answers `GET /`.
    ///
    /// The configuration reads the address to listen on from the variable `LISTEN`. Further
    /// variables are set as given.
    pub fn start(configuration: &Path, variables: &[(&str, String)]) -> Self {
        let configuration = configuration.display().to_string();
        let commands = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let server = Server::start(
            HAPROXY,
            |port, folder| {
                let listen = ("LISTEN", format!("127.0.0.1:{port}"));
                let set = variables.iter().chain([&listen]);
                let set = set.map(|(name, value)| format!("    setenv {name} {value}\n"));
                // Read first: what it sets is the environment of the other file.
                let first = folder.join("environment.cfg");
                let set: String = set.collect();
                let global = format!("global\n    stats socket {commands}\n{set}");
                fs::write(&first, global).unwrap();
                let first = first.display().to_string();
                ["-W", "-f", &first, "-f", &configuration]
                    .map(str::to_owned)
                    .to_vec()
            },
            |address, _| answers(address),
        );
        Self { server, commands }
    }

    /// Lets the master start a new worker with the configuration (`SIGUSR2`), and waits until the
    /// old worker is gone.
    pub fn reload(&self) {
        let before = self.workers();
        self.signal("USR2");
        wait_until("another worker", Duration::from_secs(10), || {
            let now = self.workers();
            let is_new = !now.is_empty() && now.iter().all(|worker| !before.contains(worker));
            if is_new {
                Ok(())
            } else {
                Err(format!("{before:?}, {now:?}"))
            }
        });
    }

    /// Waits until it asks its peers for no more of their counts. Before, it tells none to the next
    /// process.
    pub fn wait_for_peers(&self) {
        wait_until(
            "an end of the first exchange",
            Duration::from_secs(20),
            || {
                let peers = exchange(self.commands, "show peers\n");
                match peers.map_err(|error| error.to_string())? {
                    peers if peers.contains("resync_timeout=<PAST>") => Ok(()),
                    peers => Err(peers),
                }
            },
        );
    }

    /// Returns the processes that serve.
    fn workers(&self) -> Vec<String> {
        let master = self.process_id();
        let children = fs::read_to_string(format!("/proc/{master}/task/{master}/children"));
        let children = children.unwrap_or_default();
        children.split_whitespace().map(str::to_owned).collect()
    }
}

fn exchange(address: SocketAddr, question: &str) -> io::Result<String> {
    let mut stream = connect(address, Duration::from_secs(5))?;
    stream.write_all(question.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

fn answers(address: SocketAddr) -> Result<(), String> {
    match exchange(address, "GET / HTTP/1.0\r\n\r\n") {
        Ok(answer) if answer.starts_with("HTTP/1.") => Ok(()),
        Ok(answer) => Err(answer),
        Err(error) => Err(error.to_string()),
    }
}
