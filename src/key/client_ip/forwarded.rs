//! Keys from the address that trusted proxies write into a header.

use std::{fmt, net::IpAddr};

use http::{Extensions, HeaderName, Request};
use ipnet::IpNet;

use super::{Networks, address_settings, elements, peer::PeerIp};
use crate::{
    error::{Error, or_panic},
    key::{Extracted, KeyExtractor, MissingKey, header},
};

/// What extractors behind proxies have in common: trust in networks, and the client's address.
macro_rules! proxy_settings {
    () => {
        /// Trusts proxies in these networks, such as `[IpNet::from(address)]`;
        /// [`try_trusting`](Self::try_trusting) takes text.
        ///
        /// A client in one of them is taken for a proxy, and what it sent for what a proxy wrote:
        /// it can choose its key. Where clients share the network or the machine of the proxies,
        /// name the addresses of the proxies alone, or use [`hops`](Self::hops).
        pub fn trusting<I>(networks: I) -> Self
        where
            I: IntoIterator<Item: Into<IpNet>>,
        {
            Self::new(Trust::Networks(networks.into_iter().collect()))
        }

        /// Trusts proxies in these networks, each an address, or an address and a prefix.
        ///
        /// # Errors
        ///
        /// Returns an error if one of them is neither.
        pub fn try_trusting<I>(networks: I) -> Result<Self, Error>
        where
            I: IntoIterator<Item: AsRef<str>>,
        {
            Ok(Self::new(Trust::Networks(Networks::parse(networks)?)))
        }

        /// Returns the client's address, unmapped from IPv6; `None` if the server does not pass on
        /// the peer's.
        ///
        /// It is the address itself, whatever the prefixes are, and not the IPv4 address in one
        /// that NAT64 has translated.
        ///
        /// **`None` is the server's fault.** A closure that makes it an ordinary missing key, as
        /// `clients.client(request).map(Key::from)` does, hides that: under
        /// [`or_exempt`](crate::key::KeyExtractorExt::or_exempt) everybody is exempt. Use the
        /// extractor itself as the key, or return [`MissingKey::misconfigured`]:
        ///
        /// ```
        /// use http::{Request, StatusCode};
        /// use tollgate::key::{ForwardedFor, IpNet, Key, MissingKey};
        ///
        /// let clients = ForwardedFor::try_trusting(["10.0.0.0/8"])?;
        /// let refused: IpNet = "203.0.113.0/24".parse()?;
        /// let key = move |request: &Request<String>| match clients.client(request) {
        ///     None => Err(MissingKey::misconfigured("no peer's address: serve with connect info")),
        ///     Some(client) if refused.contains(&client) => {
        ///         Err(MissingKey::new("this network is not served").with_status(StatusCode::FORBIDDEN))
        ///     }
        ///     Some(client) => Ok(Key::from(client)),
        /// };
        /// # let _ = tollgate::RateLimitLayer::new(tollgate::TokenBucket::per_second(1)).key(key);
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        pub fn client<B>(&self, req: &Request<B>) -> Option<IpAddr> {
            self.find(req).ok()
        }
    };
}

/// Limits by the client's address in `X-Forwarded-For`, as trusted proxies write it.
///
/// Starts from the [peer](super::PeerIp) and reads the header from the right, over all of its
/// lines, as long as the hop is trusted. The first hop that is not trusted is the client. An
/// element that is not an address (malformed, empty, `unknown`, a host name) ends the search, and
/// the last valid hop is the client. The header of an untrusted peer is ignored, so clients cannot
/// choose their key, as long as none of them has an address that is trusted.
///
/// Addresses become keys as for [`PeerIp`](super::PeerIp). At most 64 elements are read.
///
/// # Unix sockets
///
/// A proxy whose own client came through a Unix socket may write `unix:`. That is not an address,
/// so the search ends there, and all clients beyond it share the key of that proxy. Let the outer
/// proxy set the header, or the inner one leave it alone.
///
/// A server that listens on a Unix socket has peers without an address. Give them the loopback
/// address, and trust it:
///
#[cfg_attr(all(unix, feature = "axum"), doc = "```")]
#[cfg_attr(not(all(unix, feature = "axum")), doc = "```ignore")]
/// use std::net::{IpAddr, Ipv4Addr};
/// use axum::{Router, extract::connect_info::{ConnectInfo, Connected}, serve::IncomingStream};
/// use tokio::net::UnixListener;
/// use tollgate::{RateLimitLayer, TokenBucket, key::ForwardedFor};
///
/// #[derive(Clone)]
/// struct OverUnix;
///
/// impl Connected<IncomingStream<'_, UnixListener>> for OverUnix {
///     fn connect_info(_: IncomingStream<'_, UnixListener>) -> Self {
///         Self
///     }
/// }
///
/// let clients = ForwardedFor::try_trusting(["127.0.0.1"])?.peer_from(|extensions| {
///     let peer = extensions.get::<ConnectInfo<OverUnix>>();
///     peer.map(|_| IpAddr::V4(Ipv4Addr::LOCALHOST))
/// });
/// let app: Router =
///     Router::new().layer(RateLimitLayer::new(TokenBucket::per_second(10)).key(clients));
/// let app = app.into_make_service_with_connect_info::<OverUnix>();
/// # let _ = app;
/// # Ok::<(), tollgate::Error>(())
/// ```
///
/// With tonic, the peers of a `UnixListenerStream` have a `UdsConnectInfo`:
///
#[cfg_attr(all(unix, feature = "tonic"), doc = "```")]
#[cfg_attr(not(all(unix, feature = "tonic")), doc = "```ignore")]
/// use std::net::{IpAddr, Ipv4Addr};
/// use tollgate::{RateLimitLayer, TokenBucket, key::ForwardedFor};
/// use tonic::transport::{Server, server::UdsConnectInfo};
///
/// let clients = ForwardedFor::try_trusting(["127.0.0.1"])?.peer_from(|extensions| {
///     let peer = extensions.get::<UdsConnectInfo>();
///     peer.map(|_| IpAddr::V4(Ipv4Addr::LOCALHOST))
/// });
/// # let mut request = http::Request::builder().header("x-forwarded-for", "192.0.2.7").body(()).unwrap();
/// # request.extensions_mut().insert(UdsConnectInfo { peer_addr: None, peer_cred: None });
/// # assert_eq!(clients.client(&request), Some(IpAddr::from([192, 0, 2, 7])));
/// let server =
///     Server::builder().layer(RateLimitLayer::new(TokenBucket::per_second(10)).key(clients));
/// # let _ = server;
/// # Ok::<(), tollgate::Error>(())
/// ```
///
/// # Examples
///
/// ```
/// use std::net::{Ipv4Addr, SocketAddr};
/// use http::Request;
/// use tollgate::key::{Extracted, ForwardedFor, Key, KeyExtractor};
///
/// let clients = ForwardedFor::try_trusting(["10.0.0.0/8"])?;
/// let request = |peer: [u8; 4]| {
///     let mut request = Request::new(());
///     let elements = "6.6.6.6, 192.0.2.7, 10.0.0.2".parse().unwrap();
///     request.headers_mut().insert("x-forwarded-for", elements);
///     request.extensions_mut().insert(SocketAddr::from((peer, 4711)));
///     request
/// };
/// let key = |address: [u8; 4]| Ok(Extracted::Key(Key::from(Ipv4Addr::from(address))));
///
/// assert_eq!(clients.extract(&request([10, 0, 0, 1])), key([192, 0, 2, 7]));
/// assert_eq!(clients.extract(&request([203, 0, 113, 9])), key([203, 0, 113, 9]));
/// # Ok::<(), tollgate::Error>(())
/// ```
#[doc(alias(
    "per ip",
    "client ip",
    "proxy",
    "load balancer",
    "x-real-ip",
    "cf-connecting-ip"
))]
#[derive(Clone)]
pub struct ForwardedFor {
    chain: ProxyChain,
    name: HeaderName,
}

impl ForwardedFor {
    proxy_settings!();

    /// Trusts the last `count` hops, whatever their address; 0 uses the peer's address.
    ///
    /// `count` is the number of proxies in front of the server, including the peer. A client that
    /// can bypass one of them can choose its key. If the networks of the proxies are known, and no
    /// client is in them, [`trusting`](Self::trusting) is safer.
    ///
    /// # Lists shorter than `count`
    ///
    /// The client is then the leftmost element, or the peer if there is no element. Refusing such
    /// requests would protect nothing:
    ///
    /// - Each proxy appends the address of its peer. A request through all `count` proxies has at
    ///   least `count` elements, whatever its client sent. Its key is the address that the
    ///   outermost proxy saw.
    /// - Only a request that bypassed a proxy can have a short list. Its client could also have
    ///   sent a list that is long enough. To prevent both, do not let clients bypass a proxy.
    ///
    /// An element that is not an address ends the list.
    ///
    /// ```
    /// use std::net::{Ipv4Addr, SocketAddr};
    /// use http::Request;
    /// use tollgate::key::{Extracted, ForwardedFor, Key, KeyExtractor};
    ///
    /// let mut request = Request::builder().header("x-forwarded-for", "192.0.2.7").body(()).unwrap();
    /// request.extensions_mut().insert(SocketAddr::from(([10, 0, 0, 1], 80)));
    /// // Through one proxy, where two were expected.
    /// let client = Extracted::Key(Key::from(Ipv4Addr::new(192, 0, 2, 7)));
    /// assert_eq!(ForwardedFor::hops(2).extract(&request), Ok(client));
    /// ```
    pub fn hops(count: usize) -> Self {
        Self::new(Trust::Hops(count))
    }

    fn new(trust: Trust) -> Self {
        Self {
            chain: ProxyChain::new(trust),
            name: HeaderName::from_static("x-forwarded-for"),
        }
    }

    /// Reads another header instead, as in `"cf-connecting-ip"` or `"x-real-ip"`.
    ///
    /// The last trusted proxy must overwrite the header or append to it. If it passes on the
    /// client's value, clients can choose their keys.
    ///
    /// # Panics
    ///
    /// Panics if `name` is not a valid header name.
    #[must_use]
    #[track_caller]
    pub fn in_header(self, name: &str) -> Self {
        or_panic(self.try_in_header(name))
    }

    /// Reads another header instead, as [`in_header`](Self::in_header) does.
    ///
    /// # Errors
    ///
    /// Returns an error if `name` is not a valid header name.
    pub fn try_in_header(mut self, name: &str) -> Result<Self, Error> {
        self.name = header::parse_name(name)?;
        Ok(self)
    }

    fn find<B>(&self, req: &Request<B>) -> Result<IpAddr, MissingKey> {
        let elements = elements::forwarded_for(req.headers(), &self.name);
        self.chain.client(req.extensions(), elements)
    }

    address_settings!(chain.peer);
}

impl<B> KeyExtractor<Request<B>> for ForwardedFor {
    fn extract(&self, req: &Request<B>) -> Result<Extracted, MissingKey> {
        Ok(self.chain.key(self.find(req)?))
    }
}

impl fmt::Debug for ForwardedFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut f = f.debug_struct("ForwardedFor");
        self.chain.debug(f.field("header", &self.name))
    }
}

/// Limits by the client's address in `Forwarded` (RFC 7239), as trusted proxies write it.
///
/// Works as [`ForwardedFor`]: starts from the peer and reads the `for` parameters of the elements
/// from the right. An element without `for`, with two of them, or with an obfuscated one
/// (`unknown`, `_hidden`) ends the search.
///
/// The parser is more lenient than the RFC in two ways: IPv6 addresses need no brackets or quotes,
/// because hand-written proxy settings often omit them, and blanks are allowed around semicolons.
///
/// # Examples
///
/// ```
/// use std::net::{Ipv6Addr, SocketAddr};
/// use http::Request;
/// use tollgate::key::{Extracted, Forwarded, Key, KeyExtractor};
///
/// let mut request = Request::new(());
/// let elements = r#"for=6.6.6.6, for="[2001:db8::1]:4711";by="a,b""#.parse().unwrap();
/// request.headers_mut().insert("forwarded", elements);
/// request.extensions_mut().insert(SocketAddr::from(([10, 0, 0, 1], 80)));
///
/// let client: Ipv6Addr = "2001:db8::".parse().unwrap();
/// assert_eq!(
///     Forwarded::try_trusting(["10.0.0.0/8"])?.extract(&request),
///     Ok(Extracted::Key(Key::from(client))),
/// );
/// # Ok::<(), tollgate::Error>(())
/// ```
#[doc(alias("per ip", "client ip", "proxy", "rfc7239"))]
#[derive(Clone)]
pub struct Forwarded {
    chain: ProxyChain,
}

impl Forwarded {
    proxy_settings!();

    /// Trusts the last `count` hops, whatever their address; 0 uses the peer's address.
    ///
    /// [`trusting`](Self::trusting) is safer, as described on [`ForwardedFor::hops`]. If the list
    /// has fewer elements than `count`, the leftmost one is the client, or the peer if there is
    /// none.
    pub fn hops(count: usize) -> Self {
        Self::new(Trust::Hops(count))
    }

    fn new(trust: Trust) -> Self {
        Self {
            chain: ProxyChain::new(trust),
        }
    }

    fn find<B>(&self, req: &Request<B>) -> Result<IpAddr, MissingKey> {
        let elements = elements::forwarded(req.headers());
        self.chain.client(req.extensions(), elements)
    }

    address_settings!(chain.peer);
}

impl<B> KeyExtractor<Request<B>> for Forwarded {
    fn extract(&self, req: &Request<B>) -> Result<Extracted, MissingKey> {
        Ok(self.chain.key(self.find(req)?))
    }
}

impl fmt::Debug for Forwarded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.chain.debug(&mut f.debug_struct("Forwarded"))
    }
}

/// The maximum number of elements that are read. Real chains have a handful.
const MAX_ELEMENTS: usize = 64;

/// The proxies whose elements are trusted.
#[derive(Clone)]
enum Trust {
    Networks(Networks),
    Hops(usize),
}

/// The peer and the trusted proxies between it and the client.
#[derive(Clone)]
struct ProxyChain {
    peer: PeerIp,
    trust: Trust,
}

impl ProxyChain {
    fn new(trust: Trust) -> Self {
        Self {
            peer: PeerIp::new(),
            trust,
        }
    }

    /// Returns the key of the client.
    #[inline]
    fn key(&self, client: IpAddr) -> Extracted {
        Extracted::Key(self.peer.prefixes.key(client))
    }

    /// Returns the address of the client.
    ///
    /// `elements` are those of the header from the right; `None` is an element that is not an
    /// address.
    #[inline]
    fn client(
        &self,
        extensions: &Extensions,
        mut elements: impl Iterator<Item = Option<IpAddr>>,
    ) -> Result<IpAddr, MissingKey> {
        let peer = self.peer.find(extensions, |peer| peer)?;
        // Trust is checked for the unmapped address, but never for the IPv4 address in a NAT64 one:
        // any client may connect through such a translator.
        let mut client = peer.to_canonical();
        for hop in 0..MAX_ELEMENTS {
            let is_trusted = match &self.trust {
                Trust::Networks(networks) => networks.contain(client),
                Trust::Hops(hops) => hop < *hops,
            };
            if !is_trusted {
                break;
            }
            // An invalid element ends the search: the elements beyond it may be forged.
            match elements.next().flatten() {
                Some(address) => client = address.to_canonical(),
                None => break,
            }
        }
        Ok(client)
    }

    fn debug(&self, f: &mut fmt::DebugStruct<'_, '_>) -> fmt::Result {
        match &self.trust {
            Trust::Networks(networks) => f.field("trusting", networks),
            Trust::Hops(hops) => f.field("hops", hops),
        };
        f.field("prefixes", &self.peer.prefixes)
            .finish_non_exhaustive()
    }
}
