//! Hears the connections of TLS around a guarded listener: by the first call of their service.
//!
//! The guard below TLS sees no heads, so the server reports a request. A request names its
//! connection by the address of its peer. Two connections may share it, to two addresses of the
//! server: then a request on one of them counts for both.

use std::{
    fmt,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use dashmap::DashMap;
use foldhash::fast::RandomState;
use http::Request;
use tower_layer::Layer;
use tower_service::Service;

use crate::key::peer_socket;

/// A layer that tells a [`Guarded`](super::Guarded) listener below TLS which connections have made
/// a request. Clones share them.
///
/// TLS around the guarded listener hides the heads. With this layer, a connection of TLS is heard
/// when its service is called for the first time, and closed if that is not within
/// [`head_within`](super::Guarded::head_within). Without it, it is heard with the first record of
/// application data, which comes before a head.
///
#[cfg_attr(all(feature = "tonic", feature = "tonic-tls"), doc = "```no_run")]
#[cfg_attr(not(all(feature = "tonic", feature = "tonic-tls")), doc = "```text")]
/// use tokio::net::TcpListener;
/// use tollgate::listen::{Guarded, Heard};
/// use tonic::transport::{Identity, Server, ServerTlsConfig};
///
/// # async fn serve<S>(service: S, identity: Identity) -> Result<(), Box<dyn std::error::Error>>
/// # where
/// #     S: tower::Service<http::Request<tonic::body::Body>, Response = http::Response<tonic::body::Body>, Error = std::convert::Infallible>
/// #         + tonic::server::NamedService + Clone + Send + Sync + 'static,
/// #     S::Future: Send,
/// # {
/// let heard = Heard::new();
/// let incoming = Guarded::new(TcpListener::bind("0.0.0.0:50051").await?)
///     .heard_by(&heard)
///     .build()?;
/// Server::builder()
///     .tls_config(ServerTlsConfig::new().identity(identity))?
///     .layer(heard)
///     .add_service(service)
///     .serve_with_incoming(incoming)
///     .await?;
/// # Ok(()) }
/// ```
///
/// The address is read from where [`PeerIp`](crate::key::PeerIp) reads it. A request without one is
/// passed on, and its connection is closed when its time is over.
#[derive(Clone, Default)]
pub struct Heard(Arc<DashMap<SocketAddr, Vec<Arc<AtomicBool>>, RandomState>>);

impl Heard {
    /// Creates a layer.
    pub fn new() -> Self {
        Self::default()
    }

    /// Expects a request on the connection of a peer.
    pub(super) fn expect(&self, peer: SocketAddr) -> Mark {
        let is_heard = Arc::<AtomicBool>::default();
        self.0.entry(peer).or_default().push(Arc::clone(&is_heard));
        Mark {
            is_heard,
            peer,
            heard: self.clone(),
        }
    }
}

/// A connection whose service was not called yet. It is expected until this is dropped.
#[derive(Debug)]
pub(super) struct Mark {
    is_heard: Arc<AtomicBool>,
    peer: SocketAddr,
    heard: Heard,
}

impl Mark {
    pub(super) fn is_heard(&self) -> bool {
        // Relaxed: it guards nothing, and a request is made long before its time is over.
        self.is_heard.load(Ordering::Relaxed)
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        self.heard.0.remove_if_mut(&self.peer, |_, expected| {
            expected.retain(|other| !Arc::ptr_eq(other, &self.is_heard));
            expected.is_empty()
        });
    }
}

impl<S> Layer<S> for Heard {
    type Service = HeardService<S>;

    fn layer(&self, inner: S) -> HeardService<S> {
        HeardService {
            inner,
            heard: self.clone(),
        }
    }
}

/// The service of [`Heard`].
///
/// ```
/// use http::Request;
/// use tollgate::listen::{Heard, HeardService};
/// use tower::{Layer, Service, util::MapRequest};
///
/// fn layered<S: Service<Request<()>>>(inner: S) -> HeardService<S> {
///     Heard::new().layer(inner)
/// }
/// # let _ = layered::<tower::util::BoxService<Request<()>, (), ()>>;
/// ```
#[derive(Clone, Debug)]
pub struct HeardService<S> {
    inner: S,
    heard: Heard,
}

impl<S: Service<Request<B>>, B> Service<Request<B>> for HeardService<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> S::Future {
        // Later requests of the connection find nothing.
        let peer = peer_socket(request.extensions());
        if let Some((_, expected)) = peer.and_then(|peer| self.heard.0.remove(&peer)) {
            for is_heard in expected {
                is_heard.store(true, Ordering::Relaxed);
            }
        }
        self.inner.call(request)
    }
}

impl fmt::Debug for Heard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Heard")
            .field("expected", &self.0.len())
            .finish()
    }
}
