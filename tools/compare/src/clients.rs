//! Addresses of clients.

use std::net::{IpAddr, Ipv4Addr};

/// Returns another address for each number below 2²⁴, none of which is in `10.0.0.0/8`.
pub fn client(number: u32) -> IpAddr {
    assert!(
        number < 1 << 24,
        "expected a number below 2^24, found {number}"
    );
    Ipv4Addr::from(0xCB00_0000 + number).into()
}
