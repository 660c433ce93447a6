//! The demo's client, which keeps one connection.

use std::{
    error::Error,
    fmt::{self, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use axum::{
    body::{Body, Bytes},
    http::{HeaderName, HeaderValue, Request, Response, StatusCode, header},
};
use http_body_util::BodyExt;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::{
    net::TcpStream,
    time::{Instant, timeout},
};

pub(crate) struct Client {
    connection: SendRequest<Body>,
    host: String,
    header: Option<(HeaderName, HeaderValue)>,
}

/// A response, and the instants between which it was decided.
pub(crate) struct Answer {
    pub(crate) sent: Instant,
    pub(crate) received: Instant,
    response: Response<Bytes>,
}

impl Client {
    pub(crate) async fn connect(
        server: SocketAddr,
        header: Option<(HeaderName, HeaderValue)>,
    ) -> Result<Self, Box<dyn Error>> {
        let mut address = server;
        if server.ip().is_unspecified() {
            address.set_ip(match server {
                SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
                SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
            });
        }
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (connection, driver) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(driver);
        Ok(Self {
            connection,
            host: address.to_string(),
            header,
        })
    }

    /// `GET /`.
    pub(crate) async fn get(&mut self) -> Result<Answer, Box<dyn Error>> {
        let mut request = Request::get("/")
            .header(header::HOST, &self.host)
            .body(Body::empty())?;
        if let Some((name, value)) = self.header.clone() {
            request.headers_mut().insert(name, value);
        }
        timeout(Duration::from_secs(10), self.exchange(request)).await?
    }

    async fn exchange(&mut self, request: Request<Body>) -> Result<Answer, Box<dyn Error>> {
        self.connection.ready().await?;
        let sent = Instant::now();
        let (parts, body) = self.connection.send_request(request).await?.into_parts();
        let received = Instant::now();
        let body = body.collect().await?.to_bytes();
        Ok(Answer {
            sent,
            received,
            response: Response::from_parts(parts, body),
        })
    }
}

impl Answer {
    /// Returns `true` for an admitted request and `false` for a refused one. Any other response is
    /// an error.
    pub(crate) fn is_admitted(&self) -> Result<bool, Box<dyn Error>> {
        match self.response.status() {
            StatusCode::TOO_MANY_REQUESTS => Ok(false),
            status if status.is_success() => Ok(true),
            _ => Err(format!("neither an admission nor a refusal:\n{self}").into()),
        }
    }

    /// Returns `Retry-After` in seconds, or `None` if waiting does not help.
    pub(crate) fn retry_after(&self) -> Option<u64> {
        self.response
            .headers()
            .get(header::RETRY_AFTER)?
            .to_str()
            .ok()?
            .parse()
            .ok()
    }

    pub(crate) fn status_line(&self) -> String {
        format!("{:?} {}", self.response.version(), self.response.status())
    }
}

/// The usual width of a terminal.
const WIDTH: usize = 80;
/// The maximum indentation of a folded line.
const INDENT: usize = 3;

/// Prints the response as received, indented.
impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "  {}", self.status_line())?;
        for (name, value) in self.response.headers() {
            write!(
                f,
                "\n  {name}: {}",
                String::from_utf8_lossy(value.as_bytes())
            )?;
        }
        let body = String::from_utf8_lossy(self.response.body());
        let mut column = 0;
        for (index, word) in body.trim().split_inclusive(',').enumerate() {
            // Long lines of JSON are folded after a comma.
            if index == 0 {
                f.write_str("\n\n  ")?;
            } else if column + word.len() > WIDTH - INDENT {
                f.write_str("\n   ")?;
                column = 0;
            }
            column += word.len();
            f.write_str(word)?;
        }
        f.write_char('\n')
    }
}
