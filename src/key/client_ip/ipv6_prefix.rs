//! The prefix that identifies an IPv6 client.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use crate::{error::Error, key::Key};

/// The well-known prefix 64:ff9b::/96 of translated IPv4 addresses (RFC 6052 §2.1), shifted right by 32 bits.
const NAT64: u128 = 0x0064_ff9b << 64;

/// The leading bits of an IPv6 address that identify a client.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Ipv6Prefix {
    mask: u128,
}

impl Ipv6Prefix {
    pub(super) fn try_new(bits: u8) -> Result<Self, Error> {
        if !(1..=128).contains(&bits) {
            return Err(Error::new(format!(
                "an IPv6 prefix of {bits} bits: expected 1 to 128; 64 suits most networks"
            )));
        }
        Ok(Self {
            mask: u128::MAX << (128 - u32::from(bits)),
        })
    }

    /// Returns the key of an address.
    #[inline]
    pub(super) fn key(self, address: IpAddr) -> Key {
        // Unmapping comes before masking: all of IPv4 lies in one /64 of `::ffff:0:0/96`
        // (GHSA-46wh-pxpv-q5gq).
        let address = match address.to_canonical() {
            IpAddr::V4(address) => return address.into(),
            IpAddr::V6(address) => address.to_bits(),
        };
        if address >> 32 == NAT64 {
            return Ipv4Addr::from_bits(address as u32).into();
        }
        Ipv6Addr::from_bits(address & self.mask).into()
    }
}

impl Default for Ipv6Prefix {
    fn default() -> Self {
        Self {
            mask: u128::MAX << 64,
        }
    }
}

impl fmt::Debug for Ipv6Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}", self.mask.leading_ones())
    }
}
