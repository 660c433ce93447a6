//! Keys from the client's address.

mod elements;
mod forwarded;
mod networks;
mod peer;

pub use self::{
    forwarded::{Forwarded, ForwardedFor},
    peer::PeerIp,
};

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
            match self.try_ipv6_prefix(bits) {
                Ok(this) => this,
                Err(error) => panic!("{error}"),
            }
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
            match self.try_ipv4_prefix(bits) {
                Ok(this) => this,
                Err(error) => panic!("{error}"),
            }
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
        ) -> crate::key::exempt::ExemptIf<Self, crate::key::client_ip::networks::InNetworks<Self>>
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
        ) -> Result<crate::key::exempt::ExemptIf<Self, crate::key::client_ip::networks::InNetworks<Self>>, crate::Error>
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
        pub fn in_networks<I>(self, networks: I) -> crate::key::client_ip::networks::InNetworks<Self>
        where
            I: IntoIterator<Item: Into<ipnet::IpNet>>,
        {
            crate::key::client_ip::networks::InNetworks::new(self, networks.into_iter().collect())
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
        pub fn try_in_networks<I>(self, networks: I) -> Result<crate::key::client_ip::networks::InNetworks<Self>, crate::Error>
        where
            I: IntoIterator<Item: AsRef<str>>,
        {
            let networks = crate::key::client_ip::networks::Networks::parse(networks)?;
            Ok(crate::key::client_ip::networks::InNetworks::new(self, networks))
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
