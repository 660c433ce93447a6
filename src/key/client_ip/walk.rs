//! The way from the peer to the client, hop by hop.

use std::{fmt, net::IpAddr};

use http::Extensions;

use super::{networks::Networks, peer::PeerIp};
use crate::key::{Extracted, MissingKey};

/// How many elements are read at most. Real chains have a handful; a longer one is an attack
/// on the reader.
const MOST: usize = 64;

/// How far the word of a hop is taken.
#[derive(Clone)]
pub(super) enum Trust {
    Networks(Networks),
    Hops(usize),
}

/// Where the walk starts, and what it may believe.
#[derive(Clone)]
pub(super) struct Walk {
    pub(super) peer: PeerIp,
    trust: Trust,
}

impl Walk {
    pub(super) fn new(trust: Trust) -> Self {
        Self {
            peer: PeerIp::new(),
            trust,
        }
    }

    /// The key of the client, given the elements of the header from the right; `None`
    /// is an element that names no address.
    #[inline]
    pub(super) fn key(
        &self,
        extensions: &Extensions,
        elements: impl Iterator<Item = Option<IpAddr>>,
    ) -> Result<Extracted, MissingKey> {
        let peer = self.peer.find(extensions, |peer| peer)?;
        let client = self.client(peer, elements);
        Ok(Extracted::Key(self.peer.prefix.key(client)))
    }

    fn client(&self, peer: IpAddr, mut elements: impl Iterator<Item = Option<IpAddr>>) -> IpAddr {
        // Trust asks for the unmapped address, but never for the IPv4 address in a NAT64 one:
        // anybody's packets may come through such a translator.
        let mut client = peer.to_canonical();
        for walked in 0..MOST {
            let believed = match &self.trust {
                Trust::Networks(networks) => networks.contain(client),
                Trust::Hops(hops) => walked < *hops,
            };
            if !believed {
                break;
            }
            // A hop that is not understood ends the walk: whoever is beyond it could have
            // written anything.
            match elements.next().flatten() {
                Some(hop) => client = hop.to_canonical(),
                None => break,
            }
        }
        client
    }

    pub(super) fn debug(&self, f: &mut fmt::DebugStruct<'_, '_>) -> fmt::Result {
        match &self.trust {
            Trust::Networks(networks) => f.field("trusting", networks),
            Trust::Hops(hops) => f.field("hops", hops),
        };
        f.field("ipv6_prefix", &self.peer.prefix)
            .finish_non_exhaustive()
    }
}
