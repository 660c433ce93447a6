//! An introspection server on the loopback that answers as a test says.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpListener,
    task::JoinHandle,
};
use tokio_rustls::TlsAcceptor;

/// The answer to each request.
#[derive(Clone)]
pub(crate) enum Reply {
    /// A status line's end, as in `200 OK`, and a body.
    Full(&'static str, String),
    /// A body that ends before its length.
    Truncated(String),
    /// A body without an end.
    Endless,
    /// Nothing, and the connection stays open.
    Silence,
    /// The connection is closed.
    Close,
}

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    reply: Arc<Mutex<Reply>>,
    requests: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl Server {
    pub(crate) async fn start(reply: Reply) -> Self {
        Self::start_with(reply, None).await
    }

    /// Starts a server that speaks TLS, if there is a configuration for it.
    pub(crate) async fn start_with(reply: Reply, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let reply = Arc::new(Mutex::new(reply));
        let requests = Arc::<Mutex<Vec<String>>>::default();
        let (replies, log) = (Arc::clone(&reply), Arc::clone(&requests));
        let task = tokio::spawn(async move {
            // Dropped with this task, so that the server is gone at once.
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (replies, log, tls) = (Arc::clone(&replies), Arc::clone(&log), tls.clone());
                connections.spawn(async move {
                    match tls {
                        Some(tls) => serve(tls.accept(stream).await.ok()?, replies, log).await,
                        None => serve(stream, replies, log).await,
                    }
                });
            }
        });
        Self {
            address,
            reply,
            requests,
            task,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/introspect", self.address)
    }

    pub(crate) fn set(&self, reply: Reply) {
        *self.reply.lock().unwrap() = reply;
    }

    /// Returns the requests since the last call.
    pub(crate) fn take_requests(&self) -> Vec<String> {
        std::mem::take(&mut self.requests.lock().unwrap())
    }

    /// Stops it, and closes its connections.
    pub(crate) async fn stop(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    reply: Arc<Mutex<Reply>>,
    log: Arc<Mutex<Vec<String>>>,
) -> Option<()> {
    let mut received = Vec::new();
    let request = loop {
        let text = String::from_utf8_lossy(&received).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| {
                line.to_lowercase()
                    .strip_prefix("content-length: ")?
                    .parse()
                    .ok()
            });
            if body.len() >= length.unwrap_or(0) {
                break text;
            }
        }
        if stream.read_buf(&mut received).await.ok()? == 0 {
            return None;
        }
    };
    log.lock().unwrap().push(request);
    let reply = reply.lock().unwrap().clone();
    let head = |status: &str, length: usize| {
        format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n")
    };
    match reply {
        Reply::Full(status, body) => {
            let text = head(status, body.len()) + &body;
            stream.write_all(text.as_bytes()).await.ok()?;
            stream.shutdown().await.ok()?;
        }
        Reply::Truncated(body) => {
            let text = head("200 OK", body.len() + 10) + &body;
            stream.write_all(text.as_bytes()).await.ok()?;
        }
        Reply::Endless => {
            stream
                .write_all(head("200 OK", 1 << 40).as_bytes())
                .await
                .ok()?;
            // Ends when the reader hangs up.
            let chunk = [b' '; 8192];
            while stream.write_all(&chunk).await.is_ok() {}
        }
        Reply::Silence => tokio::time::sleep(Duration::from_secs(600)).await,
        Reply::Close => {}
    }
    Some(())
}
