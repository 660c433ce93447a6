//! An etcd of one node.

use std::{
    io::{self, Read, Write},
    net::SocketAddr,
    ops::Deref,
    time::Duration,
};

use super::{
    place::{connect, free_port},
    process::{Program, Server},
};

const ETCD: Program = Program {
    name: "etcd",
    package: "etcd-server",
};

const LIMIT: Duration = Duration::from_secs(5);

/// A running server; killed when dropped.
#[derive(Debug)]
pub struct Etcd(Server);

impl Deref for Etcd {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.0
    }
}

impl Etcd {
    /// Starts it and waits until it answers.
    pub fn start() -> Self {
        let arguments = |port: u16, _: &_| {
            let (name, peers) = (name(port), free_port());
            let (clients, peers) = (
                format!("http://127.0.0.1:{port}"),
                format!("http://127.0.0.1:{peers}"),
            );
            vec![
                format!("--name={name}"),
                "--data-dir=data".to_owned(),
                format!("--listen-client-urls={clients}"),
                format!("--advertise-client-urls={clients}"),
                format!("--listen-peer-urls={peers}"),
                format!("--initial-advertise-peer-urls={peers}"),
                format!("--initial-cluster={name}={peers}"),
                "--logger=zap".to_owned(),
                // Alone, it elects itself; the default second would only delay that.
                "--heartbeat-interval=20".to_owned(),
                "--election-timeout=200".to_owned(),
            ]
        };
        Self(Server::start(ETCD, arguments, answers))
    }

    /// `http://127.0.0.1:port`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address())
    }

    /// The answer of the JSON gateway, as in `("/v3/kv/range", r#"{"key": "Zm9v"}"#)`: keys and values
    /// are in base64.
    ///
    /// # Panics
    ///
    /// Where the server does not answer.
    pub fn command(&self, path: &str, json: &str) -> String {
        let answer = self.ask(path, json, LIMIT);
        answer.unwrap_or_else(|error| panic!("{path} by {:?}: {error}", self.0))
    }

    /// The same, where each wait for the network may take `limit`.
    pub fn ask(&self, path: &str, json: &str, limit: Duration) -> io::Result<String> {
        post(self.address(), path, json, limit)
    }
}

/// The name says who answers: the port, which only one has, and this process.
fn name(port: u16) -> String {
    format!("tollgate-{}-{port}", std::process::id())
}

/// Whether the etcd that we started, and nobody else, serves that address.
fn answers(address: SocketAddr, _: u32) -> Result<(), String> {
    let ask = |path: &str, json: &str| {
        let answer = post(address, path, json, Duration::from_secs(1));
        answer.map_err(|error| error.to_string())
    };
    let members = ask("/v3/cluster/member/list", "{}")?;
    if !members.contains(&name(address.port())) {
        return Err(format!("somebody else answers: {members}"));
    }
    // Only a node that has a leader can read.
    let read = ask("/v3/kv/range", r#"{"key": "AA=="}"#)?;
    if read.contains("\"header\"") {
        Ok(())
    } else {
        Err(read)
    }
}

/// By HTTP/1.0: the answer ends with the connection.
fn post(address: SocketAddr, path: &str, json: &str, limit: Duration) -> io::Result<String> {
    let mut stream = connect(address, limit)?;
    let length = json.len();
    let request = format!(
        "POST {path} HTTP/1.0\r\nHost: {address}\r\nContent-Length: {length}\r\n\r\n{json}"
    );
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let parts = answer.split_once("\r\n\r\n");
    let (_, body) = parts.ok_or_else(|| io::Error::other(format!("no HTTP: {answer:?}")))?;
    Ok(body.to_owned())
}
