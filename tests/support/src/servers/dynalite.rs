//! A server that speaks DynamoDB's protocol.

use std::{io::Write, net::SocketAddr, ops::Deref, time::Duration};

use super::{
    place::connect,
    process::{Program, Server},
};

const DYNALITE: Program = Program {
    name: "dynalite",
    package: "npm, and npm's dynalite",
};

/// A running dynalite, which keeps its tables in memory, killed when dropped.
#[derive(Debug)]
pub struct Dynalite(Server);

impl Deref for Dynalite {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.0
    }
}

impl Dynalite {
    /// Starts a server whose tables are ready at once.
    pub fn start() -> Self {
        let server = Server::start(
            DYNALITE,
            |port, _| {
                let port = port.to_string();
                let fixed = [
                    "--host",
                    "127.0.0.1",
                    "--port",
                    &port,
                    "--createTableMs",
                    "0",
                ];
                fixed.iter().map(|&argument| argument.to_owned()).collect()
            },
            |address, _| answers(address),
        );
        Self(server)
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address())
    }
}

fn answers(address: SocketAddr) -> Result<(), String> {
    let connect = || {
        let mut stream = connect(address, Duration::from_secs(1))?;
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n")
    };
    connect().map_err(|error| error.to_string())
}
