//! Keys from the address in `Forwarded`.

use std::{fmt, net::IpAddr};

use http::{Request, header::FORWARDED};
use ipnet::IpNet;

use super::{
    address_settings::address_settings,
    forwarded_element::{self, Parts},
    networks::Networks,
    proxy_chain::{ProxyChain, Trust},
};
use crate::{
    error::Error,
    key::{Extracted, KeyExtractor, MissingKey},
};

/// Limits by the client's address in `Forwarded` (RFC 7239), as trusted proxies write it.
///
/// Works as [`ForwardedFor`](super::ForwardedFor): starts from the peer and reads the `for` parameters of the elements from
/// the right. An element without `for`, with two of them, or with an obfuscated one (`unknown`, `_hidden`) ends the search.
///
/// The parser is more lenient than the RFC in two ways: IPv6 addresses need no brackets or quotes, because hand-written
/// proxy settings often omit them, and blanks are allowed around semicolons.
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
    /// Trusts proxies in these networks.
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

    /// Trusts the last `count` hops, whatever their address; 0 uses the peer's address.
    ///
    /// [`trusting`](Self::trusting) is safer, as described on [`ForwardedFor::hops`](super::ForwardedFor::hops). If the list
    /// has fewer elements than `count`, the leftmost one is the client, or the peer if there is none.
    pub fn hops(count: usize) -> Self {
        Self::new(Trust::Hops(count))
    }

    fn new(trust: Trust) -> Self {
        Self {
            chain: ProxyChain::new(trust),
        }
    }

    /// Returns the client's address, unmapped from IPv6; `None` if the server does not pass on the peer's.
    ///
    /// It is the address itself, whatever the prefixes are, and not the IPv4 address in one that NAT64 has translated.
    ///
    /// ```
    /// use http::{Request, StatusCode};
    /// use tollgate::key::{Forwarded, IpNet, Key, MissingKey};
    ///
    /// let clients = Forwarded::try_trusting(["10.0.0.0/8"])?;
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

    fn find<B>(&self, req: &Request<B>) -> Result<IpAddr, MissingKey> {
        let lines = req.headers().get_all(FORWARDED).into_iter().rev();
        let elements = lines.flat_map(|line| Parts::new(line.as_bytes(), b','));
        self.chain.client(
            req.extensions(),
            elements.map(|element| forwarded_element::client(element?)),
        )
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
