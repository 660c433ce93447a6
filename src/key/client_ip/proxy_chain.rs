//! The search for the client in a list of proxies.

use std::{fmt, net::IpAddr};

use http::Extensions;

use super::{networks::Networks, peer::PeerIp};
use crate::key::{Extracted, MissingKey};

/// The maximum number of elements that are read. Real chains have a handful.
const MAX_ELEMENTS: usize = 64;

/// The proxies whose elements are trusted.
#[derive(Clone)]
pub(super) enum Trust {
    Networks(Networks),
    Hops(usize),
}

/// The peer and the trusted proxies between it and the client.
#[derive(Clone)]
pub(super) struct ProxyChain {
    pub(super) peer: PeerIp,
    trust: Trust,
}

impl ProxyChain {
    pub(super) fn new(trust: Trust) -> Self {
        Self {
            peer: PeerIp::new(),
            trust,
        }
    }

    /// Returns the key of the client.
    #[inline]
    pub(super) fn key(&self, client: IpAddr) -> Extracted {
        Extracted::Key(self.peer.prefixes.key(client))
    }

    /// Returns the address of the client.
    ///
    /// `elements` are those of the header from the right; `None` is an element that is not an address.
    #[inline]
    pub(super) fn client(
        &self,
        extensions: &Extensions,
        mut elements: impl Iterator<Item = Option<IpAddr>>,
    ) -> Result<IpAddr, MissingKey> {
        let peer = self.peer.find(extensions, |peer| peer)?;
        // Trust is checked for the unmapped address, but never for the IPv4 address in a NAT64 one: any client may
        // connect through such a translator.
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

    pub(super) fn debug(&self, f: &mut fmt::DebugStruct<'_, '_>) -> fmt::Result {
        match &self.trust {
            Trust::Networks(networks) => f.field("trusting", networks),
            Trust::Hops(hops) => f.field("hops", hops),
        };
        f.field("prefixes", &self.peer.prefixes)
            .finish_non_exhaustive()
    }
}
