//! The settings that all extractors of addresses share.

/// Defines the setters for the IPv6 prefix and the source of the peer.
macro_rules! address_settings {
    ($($field:ident).*) => {
        /// Sets the length of the prefix that identifies an IPv6 client: 1 to 128 bits. Default: 64.
        ///
        /// A subscriber usually has a whole /64 and can use a fresh address of it for every request, so a longer
        /// prefix limits nobody.
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

        /// Sets the length of the prefix that identifies an IPv6 client: 1 to 128 bits. Default: 64.
        ///
        /// # Errors
        ///
        /// Returns an error if `bits` is 0 or above 128.
        pub fn try_ipv6_prefix(mut self, bits: u8) -> Result<Self, crate::Error> {
            self.$($field.)*prefix = crate::key::client_ip::ipv6_prefix::Ipv6Prefix::try_new(bits)?;
            Ok(self)
        }

        /// Reads the peer's address with `find`, for servers that store it in an extension of their own.
        ///
        /// If `find` returns `None`, the extensions listed by [`PeerIp`](crate::key::PeerIp) are read. Peers of a Unix
        /// socket have no address: return the loopback address and trust it.
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
pub(super) use address_settings;
