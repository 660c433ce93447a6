//! The client that trusted proxies name in `X-Forwarded-For`, or a header like it.

use std::{fmt, net::IpAddr};

use http::{HeaderMap, HeaderName, Request};
use ipnet::IpNet;

use super::{
    address_settings,
    networks::Networks,
    node,
    walk::{Trust, Walk},
};
use crate::{
    error::Error,
    key::{Extracted, KeyExtractor, MissingKey, header},
};

/// The client's address as trusted proxies tell it in `X-Forwarded-For`.
///
/// Starts from the [peer](super::PeerIp) and walks the header from the right, over all
/// of its lines, as long as the hop is trusted. The first hop that is not is the client. An
/// element that names no address (malformed, empty, `unknown`, a host name) ends the walk, and the last
/// good hop is the client. The header of a peer that is not trusted is ignored, so nobody
/// chooses their own key.
///
/// Addresses become keys as they do for [`PeerIp`](super::PeerIp). At most 64 elements are read.
///
/// ```
/// use std::net::{Ipv4Addr, SocketAddr};
/// use http::Request;
/// use tollgate::key::{Extracted, ForwardedFor, Key, KeyExtractor};
///
/// let clients = ForwardedFor::try_trusting(["10.0.0.0/8"])?;
/// let request = |peer: [u8; 4]| {
///     let mut request = Request::new(());
///     let told = "6.6.6.6, 192.0.2.7, 10.0.0.2".parse().unwrap();
///     request.headers_mut().insert("x-forwarded-for", told);
///     request.extensions_mut().insert(SocketAddr::from((peer, 4711)));
///     request
/// };
/// let key = |address: [u8; 4]| Ok(Extracted::Key(Key::from(Ipv4Addr::from(address))));
///
/// assert_eq!(clients.extract(&request([10, 0, 0, 1])), key([192, 0, 2, 7]));
/// assert_eq!(clients.extract(&request([203, 0, 113, 9])), key([203, 0, 113, 9]));
/// # Ok::<(), tollgate::Error>(())
/// ```
#[doc(alias("per ip", "client ip", "x-forwarded-for", "proxy"))]
#[derive(Clone)]
pub struct ForwardedFor {
    walk: Walk,
    name: HeaderName,
}

impl ForwardedFor {
    /// Believes proxies in these networks.
    pub fn trusting<I>(networks: I) -> Self
    where
        I: IntoIterator<Item: Into<IpNet>>,
    {
        Self::new(Trust::Networks(networks.into_iter().collect()))
    }

    /// Believes proxies in these networks, each an address or an address and a prefix.
    ///
    /// # Errors
    ///
    /// When one of them is neither.
    pub fn try_trusting<I>(networks: I) -> Result<Self, Error>
    where
        I: IntoIterator<Item: AsRef<str>>,
    {
        Ok(Self::new(Trust::Networks(Networks::parse(networks)?)))
    }

    /// Believes the last `count` hops, whoever they are; 0 is the peer alone.
    ///
    /// `count` is the number of proxies in front of the server, the peer included.
    /// It is the weaker choice: whoever reaches the server past one of them chooses their own
    /// key. Where the proxies' networks are known, use [`trusting`](Self::trusting).
    ///
    /// # Lists shorter than `count`
    ///
    /// The client is then the leftmost element, or the peer if there is no element. No request fails for it, and none
    /// gets a key that it could not get otherwise:
    ///
    /// - Each proxy appends the address that it was reached from. A request that came through all `count` proxies has
    ///   at least `count` elements, whatever its client sent, and its key is the address that the outermost proxy saw.
    ///   Such a client cannot shorten the list.
    /// - A request that came past one of them can have a short list. Its leftmost element is what the outermost proxy
    ///   on its way saw, or what the client wrote. That client could as well have written a list that is long enough, so
    ///   a refusal of short lists would protect nothing: keep clients from reaching the server past a proxy.
    ///
    /// An element that names no address ends the walk as the end of the list does.
    ///
    /// ```
    /// use std::net::{Ipv4Addr, SocketAddr};
    /// use http::Request;
    /// use tollgate::key::{Extracted, ForwardedFor, Key, KeyExtractor};
    ///
    /// let mut request = Request::builder().header("x-forwarded-for", "192.0.2.7").body(()).unwrap();
    /// request.extensions_mut().insert(SocketAddr::from(([10, 0, 0, 1], 80)));
    /// // One proxy was passed, two were expected.
    /// let client = Extracted::Key(Key::from(Ipv4Addr::new(192, 0, 2, 7)));
    /// assert_eq!(ForwardedFor::hops(2).extract(&request), Ok(client));
    /// ```
    pub fn hops(count: usize) -> Self {
        Self::new(Trust::Hops(count))
    }

    fn new(trust: Trust) -> Self {
        Self {
            walk: Walk::new(trust),
            name: HeaderName::from_static("x-forwarded-for"),
        }
    }

    /// Reads another header instead, as in `"cf-connecting-ip"` or `"x-real-ip"`.
    ///
    /// The last trusted proxy must overwrite it, or append to it; one that passes on what the client sent
    /// lets clients choose their keys.
    ///
    /// # Panics
    ///
    /// When `name` cannot be a header's name; meant for literals.
    #[must_use]
    #[track_caller]
    pub fn in_header(self, name: &str) -> Self {
        match self.try_in_header(name) {
            Ok(this) => this,
            Err(error) => panic!("{error}"),
        }
    }

    /// Reads another header instead.
    ///
    /// # Errors
    ///
    /// When `name` cannot be a header's name.
    pub fn try_in_header(mut self, name: &str) -> Result<Self, Error> {
        self.name = header::parse_name(name)?;
        Ok(self)
    }

    address_settings!(walk.peer);
}

/// The addresses from the right, over all lines.
fn addresses<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> impl Iterator<Item = Option<IpAddr>> + use<'a> {
    let lines = headers.get_all(name).into_iter().rev();
    lines
        .flat_map(|line| line.as_bytes().rsplit(|byte| *byte == b','))
        .map(|element| node::address(node::trim(element)))
}

impl<B> KeyExtractor<Request<B>> for ForwardedFor {
    fn extract(&self, req: &Request<B>) -> Result<Extracted, MissingKey> {
        self.walk
            .key(req.extensions(), addresses(req.headers(), &self.name))
    }
}

impl fmt::Debug for ForwardedFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut f = f.debug_struct("ForwardedFor");
        self.walk.debug(f.field("header", &self.name))
    }
}
