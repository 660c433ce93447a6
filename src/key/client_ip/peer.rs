//! Keys from the peer's address.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use http::{Extensions, Request};
#[cfg(feature = "tonic")]
use tonic::transport::server::TcpConnectInfo;
#[cfg(feature = "tonic-tls")]
use tonic::transport::server::TlsConnectInfo;

use super::address_settings;
use crate::{
    error::Error,
    key::{Extracted, Key, KeyExtractor, MissingKey},
};

/// Limits by the peer's address, from the request's extensions.
///
/// Use it if clients connect to the server directly. Behind a proxy every client has the proxy's
/// address: use [`ForwardedFor`](super::ForwardedFor) or [`Forwarded`](super::Forwarded) there.
///
/// Reads the first of these that the request has:
///
/// - the result of [`peer_from`](Self::peer_from),
/// - axum's `ConnectInfo<SocketAddr>` (feature `axum`),
/// - tonic's `TcpConnectInfo` (feature `tonic`), and its form under TLS (feature `tonic-tls`),
/// - a [`SocketAddr`], an [`IpAddr`],
/// - axum's `MockConnectInfo<SocketAddr>`, for tests (feature `axum`).
///
/// A request without any of them is the server's fault, and the error says how to fix it.
///
/// An IPv4 address that is mapped into IPv6 (`::ffff:a.b.c.d`) or translated by NAT64
/// (`64:ff9b::/96`, RFC 6052) has the key of the IPv4 address. Other IPv6 addresses share a key per
/// /64, or per another [prefix](Self::ipv6_prefix).
///
/// # Examples
///
/// ```
/// use std::net::{Ipv4Addr, SocketAddr};
/// use http::Request;
/// use tollgate::key::{Extracted, Key, KeyExtractor, PeerIp};
///
/// let mut request = Request::new(());
/// assert!(PeerIp::new().extract(&request).unwrap_err().is_server_fault());
///
/// request.extensions_mut().insert(SocketAddr::from(([192, 0, 2, 7], 4711)));
/// assert_eq!(
///     PeerIp::new().extract(&request),
///     Ok(Extracted::Key(Key::from(Ipv4Addr::new(192, 0, 2, 7)))),
/// );
/// ```
#[doc(alias("per ip", "client ip", "remote address", "ip address"))]
#[derive(Clone, Copy, Default)]
pub struct PeerIp {
    pub(super) prefixes: Prefixes,
    pub(super) find: Option<fn(&Extensions) -> Option<IpAddr>>,
}

impl PeerIp {
    /// Creates an extractor of the peer's address, with a /64 prefix for IPv6.
    pub fn new() -> Self {
        Self::default()
    }

    address_settings!();

    /// Returns the peer's address, unmapped from IPv6; `None` if the server does not pass it on.
    ///
    /// **`None` is the server's fault.** A closure that makes it an ordinary missing key, as
    /// `clients.client(request).map(Key::from)` does, hides that: under
    /// [`or_exempt`](crate::key::KeyExtractorExt::or_exempt) everybody is exempt. Use the extractor
    /// itself as the key, or return [`MissingKey::misconfigured`], as the example of
    /// [`ForwardedFor::client`](super::ForwardedFor::client) does.
    pub fn client<B>(&self, req: &Request<B>) -> Option<IpAddr> {
        let peer = self.find(req.extensions(), |peer| peer.to_canonical());
        peer.ok()
    }

    /// Returns the key of an address, as that of a request whose peer has it.
    #[cfg(feature = "listen")]
    pub(crate) fn key_of(&self, address: IpAddr) -> Key {
        self.prefixes.key(address)
    }

    /// Applies `map` to the address, which is neither unmapped nor masked.
    // A closure, called where the address is read: a return value would pass through memory.
    #[inline]
    pub(super) fn find<T>(
        &self,
        extensions: &Extensions,
        map: impl Fn(IpAddr) -> T,
    ) -> Result<T, MissingKey> {
        if let Some(address) = self.find.and_then(|find| find(extensions)) {
            return Ok(map(address));
        }
        #[cfg(feature = "axum")]
        if let Some(info) = extensions.get::<axum::extract::ConnectInfo<SocketAddr>>() {
            return Ok(map(info.0.ip()));
        }
        other_address(extensions).map(map).ok_or_else(no_peer)
    }
}

/// Returns the address from the extensions that servers other than axum insert.
// Not inlined, so that `find` stays short: each extension is a search in a hash map.
#[inline(never)]
fn other_address(extensions: &Extensions) -> Option<IpAddr> {
    if let Some(address) = other_socket(extensions) {
        return Some(address.ip());
    }
    if let Some(address) = extensions.get::<IpAddr>() {
        return Some(*address);
    }
    #[cfg(feature = "axum")]
    if let Some(mock) = extensions.get::<axum::extract::connect_info::MockConnectInfo<SocketAddr>>()
    {
        return Some(mock.0.ip());
    }
    None
}

fn other_socket(extensions: &Extensions) -> Option<SocketAddr> {
    #[cfg(feature = "tonic")]
    if let Some(address) = extensions
        .get::<TcpConnectInfo>()
        .and_then(|info| info.remote_addr)
    {
        return Some(address);
    }
    #[cfg(feature = "tonic-tls")]
    if let Some(address) = extensions
        .get::<TlsConnectInfo<TcpConnectInfo>>()
        .and_then(|info| info.get_ref().remote_addr)
    {
        return Some(address);
    }
    extensions.get().copied()
}

/// Returns the address and the port of the peer, if the server passes them on.
#[cfg(feature = "listen")]
pub(crate) fn peer_socket(extensions: &Extensions) -> Option<SocketAddr> {
    #[cfg(feature = "axum")]
    if let Some(info) = extensions.get::<axum::extract::ConnectInfo<SocketAddr>>() {
        return Some(info.0);
    }
    other_socket(extensions)
}

#[cold]
fn no_peer() -> MissingKey {
    MissingKey::misconfigured(
        "the peer's address is not in the request: serve axum with \
         `into_make_service_with_connect_info::<SocketAddr>()`, or insert the peer's `SocketAddr` \
         into the request's extensions (for axum and tonic, the feature of that name must be on)",
    )
}

impl<B> KeyExtractor<Request<B>> for PeerIp {
    #[inline]
    fn extract(&self, req: &Request<B>) -> Result<Extracted, MissingKey> {
        self.find(req.extensions(), |address| {
            Extracted::Key(self.prefixes.key(address))
        })
    }

    #[cfg(feature = "axum")]
    #[inline(always)]
    fn key_at_hand(&self, req: &Request<B>) -> Option<Key> {
        if self.find.is_some() {
            return None;
        }
        let info = req
            .extensions()
            .get::<axum::extract::ConnectInfo<SocketAddr>>()?;
        Some(self.prefixes.key(info.0.ip()))
    }
}

impl_debug!(PeerIp, |it| prefixes = it.prefixes);

/// The well-known prefix 64:ff9b::/96 of translated IPv4 addresses (RFC 6052 §2.1), shifted right
/// by 32 bits.
const NAT64: u128 = 0x0064_ff9b << 64;

/// The leading bits of an address that identify a client.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Prefixes {
    v4: u32,
    v6: u128,
}

impl Prefixes {
    pub(super) fn set_v4(&mut self, bits: u8) -> Result<(), Error> {
        if !(1..=32).contains(&bits) {
            return Err(Error::new(format!(
                "an IPv4 prefix of {bits} bits: expected 1 to 32; 32 limits each address, 24 each network of 256"
            )));
        }
        self.v4 = u32::MAX << (32 - u32::from(bits));
        Ok(())
    }

    pub(super) fn set_v6(&mut self, bits: u8) -> Result<(), Error> {
        if !(1..=128).contains(&bits) {
            return Err(Error::new(format!(
                "an IPv6 prefix of {bits} bits: expected 1 to 128; 64 suits most networks"
            )));
        }
        self.v6 = u128::MAX << (128 - u32::from(bits));
        Ok(())
    }

    /// Returns the key of an address.
    #[inline]
    pub(super) fn key(self, address: IpAddr) -> Key {
        // Unmapping comes before masking: all of IPv4 lies in one /64 of `::ffff:0:0/96`
        // (GHSA-46wh-pxpv-q5gq).
        let address = match address.to_canonical() {
            IpAddr::V4(address) => return self.v4_key(address.to_bits()),
            IpAddr::V6(address) => address.to_bits(),
        };
        if address >> 32 == NAT64 {
            return self.v4_key(address as u32);
        }
        Ipv6Addr::from_bits(address & self.v6).into()
    }

    #[inline]
    fn v4_key(self, address: u32) -> Key {
        Ipv4Addr::from_bits(address & self.v4).into()
    }
}

impl Default for Prefixes {
    fn default() -> Self {
        Self {
            v4: u32::MAX,
            v6: u128::MAX << 64,
        }
    }
}

impl fmt::Debug for Prefixes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (v4, v6) = (self.v4.leading_ones(), self.v6.leading_ones());
        write!(f, "/{v4} of IPv4, /{v6} of IPv6")
    }
}
