//! Hash slots of a cluster.

/// Returns the hash slot of a key, one of 16,384: the CRC-16/XMODEM of its hash tag, if it has one, or of the whole key (Redis
/// Cluster specification, "Hash tags").
pub(super) fn hash_slot(key: &[u8]) -> u16 {
    let tag = || {
        let open = key.iter().position(|byte| *byte == b'{')? + 1;
        let len = key[open..].iter().position(|byte| *byte == b'}')?;
        (len > 0).then(|| &key[open..open + len])
    };
    let crc = tag().unwrap_or(key).iter().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| {
            crc << 1 ^ if crc >> 15 == 1 { 0x1021 } else { 0 }
        })
    });
    crc % 16_384
}

#[cfg(test)]
mod tests {
    use super::hash_slot;

    #[test]
    fn slots_follow_the_specification() {
        // The reference value of CRC-16/XMODEM.
        assert_eq!(hash_slot(b"123456789"), 0x31c3);
        assert_eq!(hash_slot(b"a:{123456789}:b"), hash_slot(b"{123456789}"));
        assert_eq!(hash_slot(b"a:{123456789}:b"), 0x31c3);
    }
}
