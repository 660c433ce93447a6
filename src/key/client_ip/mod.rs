//! Keys made of the client's address.

mod element;
mod forwarded;
mod forwarded_for;
mod ip;
mod networks;
mod node;
mod peer;
mod walk;

pub use self::{forwarded::Forwarded, forwarded_for::ForwardedFor, peer::PeerIp};

/// The settings that all extractors of addresses have in common.
macro_rules! address_settings {
    ($($field:ident).*) => {
        /// Limits IPv6 clients by another prefix than /64; 1 to 128 bits.
        ///
        /// A subscriber is usually given a whole /64 and can draw a fresh address from it for
        /// every request, so longer prefixes limit nobody.
        ///
        /// # Panics
        ///
        /// When `bits` is 0 or above 128; meant for literals.
        #[must_use]
        #[track_caller]
        pub fn ipv6_prefix(self, bits: u8) -> Self {
            match self.try_ipv6_prefix(bits) {
                Ok(this) => this,
                Err(error) => panic!("{error}"),
            }
        }

        /// Limits IPv6 clients by another prefix than /64; 1 to 128 bits.
        ///
        /// # Errors
        ///
        /// When `bits` is 0 or above 128.
        pub fn try_ipv6_prefix(mut self, bits: u8) -> Result<Self, crate::Error> {
            self.$($field.)*prefix = crate::key::client_ip::ip::Ipv6Prefix::try_new(bits)?;
            Ok(self)
        }

        /// Asks `find` for the peer first, for servers that keep the address elsewhere.
        ///
        /// Where `find` finds nothing, the places that [`PeerIp`](crate::key::PeerIp) names are
        /// looked at. Behind a Unix socket, whose peers have no address, name the
        /// loopback address and trust it.
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
