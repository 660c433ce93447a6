//! Requests of clients in some networks.

use http::Request;

use super::{Forwarded, ForwardedFor, PeerIp, networks::Networks};
use crate::key::Predicate;

/// A predicate that selects the requests of clients in some networks: made by `in_networks` of [`PeerIp`], [`ForwardedFor`] and
/// [`Forwarded`].
///
/// An IPv4 network does not contain the addresses that NAT64 has made of its own: any client may connect through a translator.
///
/// ```
/// use tollgate::key::{ForwardedFor, Header, KeyExtractorExt};
///
/// let office = ForwardedFor::try_trusting(["10.0.0.0/8"])?.try_in_networks(["192.0.2.0/24", "2001:db8::/32"])?;
/// let key = Header::new("x-api-key").exempt_if(office);
/// # let _ = key;
/// # Ok::<(), tollgate::Error>(())
/// ```
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
