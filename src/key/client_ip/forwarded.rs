//! The client that trusted proxies name in `Forwarded`.

use std::fmt;

use http::{Request, header::FORWARDED};
use ipnet::IpNet;

use super::{
    address_settings,
    element::{self, Parts},
    networks::Networks,
    walk::{Trust, Walk},
};
use crate::{
    error::Error,
    key::{Extracted, KeyExtractor, MissingKey},
};

/// The client's address as trusted proxies tell it in `Forwarded` (RFC 7239).
///
/// Walks as [`ForwardedFor`](super::ForwardedFor) does, from the peer over the `for` parameters of
/// the elements, the last one first. An element without `for`, with two of them, or with an
/// obfuscated one (`unknown`, `_hidden`) ends the walk.
///
/// Laxer than the RFC in two ways: IPv6 addresses may stand without brackets or quotes, as
/// hand-written proxy settings produce them, and blanks may stand around semicolons.
///
/// ```
/// use std::net::{Ipv6Addr, SocketAddr};
/// use http::Request;
/// use tollgate::key::{Extracted, Forwarded, Key, KeyExtractor};
///
/// let mut request = Request::new(());
/// let told = r#"for=6.6.6.6, for="[2001:db8::1]:4711";by="a,b""#.parse().unwrap();
/// request.headers_mut().insert("forwarded", told);
/// request.extensions_mut().insert(SocketAddr::from(([10, 0, 0, 1], 80)));
///
/// let client: Ipv6Addr = "2001:db8::".parse().unwrap();
/// assert_eq!(
///     Forwarded::try_trusting(["10.0.0.0/8"])?.extract(&request),
///     Ok(Extracted::Key(Key::from(client))),
/// );
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone)]
pub struct Forwarded {
    walk: Walk,
}

impl Forwarded {
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
    /// The weaker choice, as it is for [`ForwardedFor::hops`](super::ForwardedFor::hops), whose page also tells what
    /// happens to a list shorter than `count`: the leftmost element is the client, or the peer if there is none.
    pub fn hops(count: usize) -> Self {
        Self::new(Trust::Hops(count))
    }

    fn new(trust: Trust) -> Self {
        Self {
            walk: Walk::new(trust),
        }
    }

    address_settings!(walk.peer);
}

impl<B> KeyExtractor<Request<B>> for Forwarded {
    fn extract(&self, req: &Request<B>) -> Result<Extracted, MissingKey> {
        let lines = req.headers().get_all(FORWARDED).into_iter().rev();
        let elements = lines.flat_map(|line| Parts::of(line.as_bytes(), b','));
        self.walk.key(
            req.extensions(),
            elements.map(|element| element::client(element?)),
        )
    }
}

impl fmt::Debug for Forwarded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.walk.debug(&mut f.debug_struct("Forwarded"))
    }
}
