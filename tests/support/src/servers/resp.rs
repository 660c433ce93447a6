//! A minimal client of the Redis protocol, for the inspection of servers.

use std::{
    fmt,
    io::{self, BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use super::place::connect;

/// An answer of protocol version 2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Status(String),
    Error(String),
    Number(i64),
    Bytes(Vec<u8>),
    Nothing,
    List(Vec<Reply>),
}

impl Reply {
    /// Returns the members of a list as bytes. Any other reply is one member.
    pub fn into_members(self) -> Vec<Vec<u8>> {
        match self {
            Self::List(list) => list.into_iter().flat_map(Self::into_members).collect(),
            Self::Bytes(bytes) => vec![bytes],
            other => vec![other.to_string().into_bytes()],
        }
    }
}

/// Prints the bare value. Each member of a list is on a line of its own.
impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(text) | Self::Error(text) => f.write_str(text),
            Self::Number(number) => write!(f, "{number}"),
            Self::Bytes(bytes) => f.write_str(&String::from_utf8_lossy(bytes)),
            Self::Nothing => f.write_str("(nil)"),
            Self::List(list) => {
                for (at, reply) in list.iter().enumerate() {
                    let line_end = if at == 0 { "" } else { "\n" };
                    write!(f, "{line_end}{reply}")?;
                }
                Ok(())
            }
        }
    }
}

/// A connection.
#[derive(Debug)]
pub struct Resp(BufReader<TcpStream>);

impl Resp {
    /// Connects. Each network operation may take `limit`.
    pub fn connect(address: SocketAddr, limit: Duration) -> io::Result<Self> {
        connect(address, limit).map(BufReader::new).map(Self)
    }

    /// Sets the limit of each network operation from now on.
    pub fn set_limit(&self, limit: Duration) -> io::Result<()> {
        self.0.get_ref().set_read_timeout(Some(limit))?;
        self.0.get_ref().set_write_timeout(Some(limit))
    }

    /// Sends a command without waiting for its answer.
    pub fn send(&mut self, command: &[impl AsRef<[u8]>]) -> io::Result<()> {
        let mut bytes = format!("*{}\r\n", command.len()).into_bytes();
        for word in command.iter().map(AsRef::as_ref) {
            bytes.extend(format!("${}\r\n", word.len()).into_bytes());
            bytes.extend(word);
            bytes.extend(b"\r\n");
        }
        self.0.get_mut().write_all(&bytes)
    }

    /// Waits for the next answer.
    pub fn receive(&mut self) -> io::Result<Reply> {
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        let line = line
            .strip_suffix("\r\n")
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        let wrong = || io::Error::other(format!("expected an answer of RESP 2, found {line:?}"));
        let (kind, rest) = line.split_at_checked(1).ok_or_else(wrong)?;
        let number = || rest.parse::<i64>().map_err(|_| wrong());
        Ok(match kind {
            "+" => Reply::Status(rest.to_owned()),
            "-" => Reply::Error(rest.to_owned()),
            ":" => Reply::Number(number()?),
            "$" => match usize::try_from(number()?) {
                Err(_) => Reply::Nothing,
                Ok(length) => {
                    let mut bytes = vec![0; length + 2];
                    self.0.read_exact(&mut bytes)?;
                    bytes.truncate(length);
                    Reply::Bytes(bytes)
                }
            },
            "*" => match usize::try_from(number()?) {
                Err(_) => Reply::Nothing,
                Ok(length) => Reply::List(
                    (0..length)
                        .map(|_| self.receive())
                        .collect::<Result<_, _>>()?,
                ),
            },
            _ => return Err(wrong()),
        })
    }

    /// Sends a command and waits for its answer.
    pub fn call(&mut self, command: &[impl AsRef<[u8]>]) -> io::Result<Reply> {
        self.send(command)?;
        self.receive()
    }
}
