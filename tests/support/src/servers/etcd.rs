//! An etcd with one member, or three.

use std::{
    io::{self, Read, Write},
    net::SocketAddr,
    ops::Deref,
    thread,
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

/// A running server, killed when dropped.
#[derive(Debug)]
pub struct Etcd(Server);

impl Deref for Etcd {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.0
    }
}

impl Etcd {
    /// Starts an etcd with one member, and waits until it answers.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts an etcd with further command-line arguments.
    pub fn start_with(arguments: &[&str]) -> Self {
        let peers = free_port();
        // A single member elects itself. The default timeout of a second would only delay that.
        Self::start_member(peers, &member(peers), 200, arguments)
    }

    /// Starts a cluster of three members, which tolerates the failure of any one of them.
    pub fn start_cluster() -> Vec<Self> {
        let peers: Vec<_> = (0..3).map(|_| free_port()).collect();
        let cluster: Vec<_> = peers.iter().map(|&peers| member(peers)).collect();
        let cluster = &cluster.join(",");
        // A member answers only when another one does.
        thread::scope(|scope| {
            let start = |&peers| scope.spawn(move || Self::start_member(peers, cluster, 1000, &[]));
            let starting: Vec<_> = peers.iter().map(start).collect();
            let members = starting.into_iter().map(|member| member.join().unwrap());
            members.collect()
        })
    }

    fn start_member(peers: u16, cluster: &str, election: u32, more: &[&str]) -> Self {
        let arguments = |port: u16, _: &_| {
            let name = name(peers);
            let (clients, peers) = (url_of(port), url_of(peers));
            let own = vec![
                format!("--name={name}"),
                "--data-dir=data".to_owned(),
                format!("--listen-client-urls={clients}"),
                format!("--advertise-client-urls={clients}"),
                format!("--listen-peer-urls={peers}"),
                format!("--initial-advertise-peer-urls={peers}"),
                format!("--initial-cluster={cluster}"),
                "--logger=zap".to_owned(),
                format!("--heartbeat-interval={}", election / 10),
                format!("--election-timeout={election}"),
            ];
            let more = more.iter().map(|&argument| argument.to_owned());
            own.into_iter().chain(more).collect()
        };
        let answers = move |address, _| answers(address, &name(peers));
        Self(Server::start(ETCD, arguments, answers))
    }

    /// Returns `http://127.0.0.1:port`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address())
    }

    /// Returns the answer of the JSON gateway to a call such as
    /// `("/v3/kv/range", r#"{"key": "Zm9v"}"#)`. Keys and values are in base64.
    ///
    /// # Panics
    ///
    /// If the server does not answer.
    pub fn command(&self, path: &str, json: &str) -> String {
        let answer = self.ask(path, json, LIMIT);
        answer.unwrap_or_else(|error| panic!("{path} by {:?}: {error}", self.0))
    }

    /// Like [`command`](Self::command), with a limit for each network operation.
    pub fn ask(&self, path: &str, json: &str, limit: Duration) -> io::Result<String> {
        post(self.address(), path, json, limit)
    }
}

/// Returns a name that identifies the member: its port for peers, and this process.
fn name(peers: u16) -> String {
    format!("tollgate-{}-{peers}", std::process::id())
}

fn url_of(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

/// Returns a member as other members address it.
fn member(peers: u16) -> String {
    format!("{}={}", name(peers), url_of(peers))
}

/// Checks that the etcd started here, and no other process, serves this address.
fn answers(address: SocketAddr, name: &str) -> Result<(), String> {
    let ask = |path: &str, json: &str| {
        let answer = post(address, path, json, Duration::from_secs(1));
        answer.map_err(|error| error.to_string())
    };
    let members = ask("/v3/cluster/member/list", "{}")?;
    if !members.contains(name) {
        return Err(format!("somebody else answers: {members}"));
    }
    // Only a member with a leader can read.
    let read = ask("/v3/kv/range", r#"{"key": "AA=="}"#)?;
    if read.contains("\"header\"") {
        Ok(())
    } else {
        Err(read)
    }
}

/// Posts over HTTP/1.0, where the answer ends with the connection.
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
