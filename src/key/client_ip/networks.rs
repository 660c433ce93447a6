//! The networks of trusted proxies and of clients.

use std::{fmt, net::IpAddr};

use http::Request;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::{Forwarded, ForwardedFor, PeerIp};
use crate::{error::Error, key::Predicate};

/// A predicate that selects the requests of clients in some networks: made by `in_networks` of
/// [`PeerIp`], [`ForwardedFor`] and [`Forwarded`].
#[derive(Clone, Debug)]
pub struct InNetworks<E> {
    clients: E,
    networks: Networks,
}

impl<E> InNetworks<E> {
    pub(super) fn new(clients: E, networks: Networks) -> Self {
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
pub(super) struct Networks {
    v4: Box<[(u32, u32)]>,
    v6: Box<[(u128, u128)]>,
}

impl Networks {
    /// Returns `true` if one of the networks contains the address. IPv4 must be unmapped already.
    pub(super) fn contain(&self, address: IpAddr) -> bool {
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

    pub(super) fn parse<I>(networks: I) -> Result<Self, Error>
    where
        I: IntoIterator<Item: AsRef<str>>,
    {
        networks
            .into_iter()
            .map(|text| parse(text.as_ref()))
            .collect()
    }
}

fn parse(text: &str) -> Result<IpNet, Error> {
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
