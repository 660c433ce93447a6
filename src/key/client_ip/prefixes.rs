//! The prefixes that identify a client.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use crate::{error::Error, key::Key};

/// The well-known prefix 64:ff9b::/96 of translated IPv4 addresses (RFC 6052 §2.1), shifted right by 32 bits.
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
