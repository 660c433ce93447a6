//! Keys from the client's address.

mod elements;
mod forwarded;
mod peer;

pub use self::{
    forwarded::{Forwarded, ForwardedFor},
    peer::PeerIp,
};

#[cfg(feature = "listen")]
pub(crate) use self::peer::peer_socket;

use std::{fmt, net::IpAddr};

use http::Request;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::combinators::Predicate;
use crate::error::Error;

/// Defines the methods that all extractors of addresses share: prefixes, networks, and the source
/// of the peer's address.
macro_rules! address_settings {
    ($($field:ident).*) => {
        /// Sets the length of the prefix that identifies an IPv6 client: 1 to 128 bits.
        /// Default: 64.
        ///
        /// A subscriber usually has a whole /64 and can use a fresh address of it for every
        /// request, so a longer prefix limits nobody.
        ///
        /// # Panics
        ///
        /// Panics if `bits` is 0 or above 128.
        #[must_use]
        #[track_caller]
        pub fn ipv6_prefix(self, bits: u8) -> Self {
            $crate::error::or_panic(self.try_ipv6_prefix(bits))
        }

        /// Sets the length of the prefix that identifies an IPv6 client: 1 to 128 bits.
        /// Default: 64.
        ///
        /// # Errors
        ///
        /// Returns an error if `bits` is 0 or above 128.
        pub fn try_ipv6_prefix(mut self, bits: u8) -> Result<Self, crate::Error> {
            self.$($field.)*prefixes.set_v6(bits)?;
            Ok(self)
        }

        /// Sets the length of the prefix that identifies an IPv4 client: 1 to 32 bits. Default: 32,
        /// an address each.
        ///
        /// A shorter prefix limits a network as one client, such as /24 against clients with many
        /// addresses. It also applies to IPv4 addresses that are mapped into IPv6.
        ///
        /// # Panics
        ///
        /// Panics if `bits` is 0 or above 32.
        #[must_use]
        #[track_caller]
        pub fn ipv4_prefix(self, bits: u8) -> Self {
            $crate::error::or_panic(self.try_ipv4_prefix(bits))
        }

        /// Sets the length of the prefix that identifies an IPv4 client: 1 to 32 bits. Default: 32,
        /// an address each.
        ///
        /// # Errors
        ///
        /// Returns an error if `bits` is 0 or above 32.
        pub fn try_ipv4_prefix(mut self, bits: u8) -> Result<Self, crate::Error> {
            self.$($field.)*prefixes.set_v4(bits)?;
            Ok(self)
        }

        /// Exempts clients in these networks from the limit. To select them for something else, see
        /// [`in_networks`](Self::in_networks).
        ///
        /// Without a peer's address nobody is exempt: the request is refused as the server's fault.
        ///
        /// ```
        /// use std::net::{IpAddr, SocketAddr};
        /// use http::Request;
        /// use tollgate::key::{Extracted, IpNet, KeyExtractor, PeerIp};
        ///
        /// let monitoring: IpNet = "10.9.0.0/16".parse()?;
        /// let key = PeerIp::new().exempt_networks([monitoring]);
        /// let mut request = Request::new(());
        /// request.extensions_mut().insert(SocketAddr::from(([10, 9, 1, 1], 4711)));
        /// assert_eq!(key.extract(&request), Ok(Extracted::Exempt));
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        pub fn exempt_networks<I>(
            self,
            networks: I,
        ) -> crate::key::combinators::ExemptIf<Self, crate::key::client_ip::InNetworks<Self>>
        where
            I: IntoIterator<Item: Into<ipnet::IpNet>>,
        {
            let clients = self.clone();
            crate::key::KeyExtractorExt::exempt_if(self, clients.in_networks(networks))
        }

        /// Exempts clients in these networks from the limit, each an address, or an address and a
        /// prefix.
        ///
        /// # Errors
        ///
        /// Returns an error if one of them is neither.
        pub fn try_exempt_networks<I>(
            self,
            networks: I,
        ) -> Result<crate::key::combinators::ExemptIf<Self, crate::key::client_ip::InNetworks<Self>>, crate::Error>
        where
            I: IntoIterator<Item: AsRef<str>>,
        {
            let clients = self.clone();
            Ok(crate::key::KeyExtractorExt::exempt_if(self, clients.try_in_networks(networks)?))
        }

        /// Returns a predicate that selects the requests of clients in these networks.
        ///
        /// Without a peer's address it selects nobody. The extractor that it is given to reports
        /// that only if it reads the address itself: `Header::new("x-api-key").exempt_if(office)`
        /// exempts nobody then, and nothing is logged. Where the exemption matters, use a closure
        /// that returns [`MissingKey::misconfigured`](crate::key::MissingKey::misconfigured) if
        /// [`client`](Self::client) is `None`.
        ///
        /// An IPv4 network does not contain the addresses that NAT64 has made of its own: any
        /// client may connect through a translator.
        pub fn in_networks<I>(self, networks: I) -> crate::key::client_ip::InNetworks<Self>
        where
            I: IntoIterator<Item: Into<ipnet::IpNet>>,
        {
            crate::key::client_ip::InNetworks::new(self, networks.into_iter().collect())
        }

        /// Returns a predicate that selects the requests of clients in these networks, each an
        /// address, or an address and a prefix.
        ///
        /// # Errors
        ///
        /// Returns an error if one of them is neither.
        ///
        /// # Examples
        ///
        /// ```
        /// use tollgate::key::{ForwardedFor, Header, KeyExtractorExt};
        ///
        /// let office = ForwardedFor::try_trusting(["10.0.0.0/8"])?
        ///     .try_in_networks(["192.0.2.0/24", "2001:db8::/32"])?;
        /// let key = Header::new("x-api-key").exempt_if(office);
        /// # let _ = key;
        /// # Ok::<(), tollgate::Error>(())
        /// ```
        pub fn try_in_networks<I>(self, networks: I) -> Result<crate::key::client_ip::InNetworks<Self>, crate::Error>
        where
            I: IntoIterator<Item: AsRef<str>>,
        {
            let networks = crate::key::client_ip::Networks::parse(networks)?;
            Ok(crate::key::client_ip::InNetworks::new(self, networks))
        }

        /// Reads the peer's address with `find`, for servers that store it in an extension of their
        /// own.
        ///
        /// If `find` returns `None`, the extensions listed by [`PeerIp`](crate::key::PeerIp) are
        /// read. Peers of a Unix socket have no address: return the loopback address, as
        /// [`ForwardedFor`](crate::key::ForwardedFor#unix-sockets) shows.
        #[must_use]
        pub fn peer_from(
            mut self,
            find: fn(&http::Extensions) -> Option<std::net::IpAddr>,
        ) -> Self {
            self.$($field.)*find = Some(find);
            self
        }
    };
}
use address_settings;

/// A predicate that selects the requests of clients in some networks: made by `in_networks` of
/// [`PeerIp`], [`ForwardedFor`] and [`Forwarded`].
#[derive(Clone, Debug)]
pub struct InNetworks<E> {
    clients: E,
    networks: Networks,
}

impl<E> InNetworks<E> {
    pub(in crate::key) fn new(clients: E, networks: Networks) -> Self {
        Self { clients, networks }
    }
}

macro_rules! predicates {
    ($($Clients:ident),+) => {$(
        impl<B> Predicate<Request<B>> for InNetworks<$Clients> {
            fn matches(&self, req: &Request<B>) -> bool {
                let client = self.clients.client(req);
                client.is_some_and(|client| self.networks.contain(client))
            }
        }
    )+};
}

predicates!(Forwarded, ForwardedFor, PeerIp);

/// Networks as pairs (network, mask), so that a check takes two instructions for each.
#[derive(Clone, Default)]
pub(crate) struct Networks {
    v4: Box<[(u32, u32)]>,
    v6: Box<[(u128, u128)]>,
}

impl Networks {
    /// Returns `true` if there is none.
    #[cfg(any(feature = "config", feature = "listen"))]
    pub(crate) fn is_empty(&self) -> bool {
        self.v4.is_empty() && self.v6.is_empty()
    }

    /// Returns `true` if one of the networks contains the address. IPv4 must be unmapped already.
    pub(crate) fn contain(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => {
                let bits = address.to_bits();
                self.v4
                    .iter()
                    .any(|(network, mask)| bits & mask == *network)
            }
            IpAddr::V6(address) => {
                let bits = address.to_bits();
                self.v6
                    .iter()
                    .any(|(network, mask)| bits & mask == *network)
            }
        }
    }

    pub(crate) fn parse<I>(networks: I) -> Result<Self, Error>
    where
        I: IntoIterator<Item: AsRef<str>>,
    {
        networks
            .into_iter()
            .map(|text| parse_network(text.as_ref()))
            .collect()
    }
}

/// Parses an address, or an address and a prefix.
pub(crate) fn parse_network(text: &str) -> Result<IpNet, Error> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(address.into());
    }
    text.parse().map_err(|_| {
        Error::new(format!(
            "`{}` is not a network: expected an address or an address and a prefix, \
             as in `192.0.2.1`, `10.0.0.0/8` or `2001:db8::/32`; host names are not looked up",
            text.escape_debug()
        ))
    })
}

impl<N: Into<IpNet>> FromIterator<N> for Networks {
    fn from_iter<I: IntoIterator<Item = N>>(networks: I) -> Self {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for network in networks {
            match unmapped(network.into().trunc()) {
                IpNet::V4(net) => v4.push((net.addr().to_bits(), net.netmask().to_bits())),
                IpNet::V6(net) => v6.push((net.addr().to_bits(), net.netmask().to_bits())),
            }
        }
        Self {
            v4: v4.into(),
            v6: v6.into(),
        }
    }
}

/// Unmaps a network of mapped IPv4 addresses, because addresses are unmapped before they are
/// compared.
fn unmapped(network: IpNet) -> IpNet {
    let IpNet::V6(v6) = network else {
        return network;
    };
    let length = v6.prefix_len().checked_sub(96);
    let v4 = v6.addr().to_ipv4_mapped().zip(length);
    v4.and_then(|(address, length)| Ipv4Net::new(address, length).ok())
        .map_or(network, IpNet::V4)
}

impl fmt::Debug for Networks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let v4 = self.v4.iter().map(|&(network, mask)| {
            Ipv4Net::new(network.into(), mask.leading_ones() as u8).map(IpNet::V4)
        });
        let v6 = self.v6.iter().map(|&(network, mask)| {
            Ipv6Net::new(network.into(), mask.leading_ones() as u8).map(IpNet::V6)
        });
        f.debug_list().entries(v4.chain(v6).flatten()).finish()
    }
}
