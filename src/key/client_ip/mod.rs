//! Keys from the client's address.

mod address_settings;
mod forwarded;
mod forwarded_element;
mod forwarded_for;
mod ipv6_prefix;
mod networks;
mod node;
mod peer;
mod proxy_chain;

pub use self::{forwarded::Forwarded, forwarded_for::ForwardedFor, peer::PeerIp};
