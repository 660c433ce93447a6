//! Keys from the client's address.

mod address_settings;
mod forwarded;
mod forwarded_element;
mod forwarded_for;
mod in_networks;
mod networks;
mod node;
mod peer;
mod prefixes;
mod proxy_chain;

pub use self::{
    forwarded::Forwarded, forwarded_for::ForwardedFor, in_networks::InNetworks, peer::PeerIp,
};
