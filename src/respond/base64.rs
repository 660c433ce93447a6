//! Base64, for fields that carry bytes.

/// Returns the Base64 (RFC 4648 §4) of `bytes` without padding, as gRPC expects it in `-bin` fields.
pub(crate) fn encode(bytes: &[u8]) -> Vec<u8> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = Vec::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let mut group = [0; 3];
        group[..chunk.len()].copy_from_slice(chunk);
        let bits = u32::from_be_bytes([0, group[0], group[1], group[2]]);
        // 1, 2 and 3 bytes are 2, 3 and 4 digits.
        for digit in 0..=chunk.len() {
            text.push(ALPHABET[(bits >> (18 - 6 * digit)) as usize & 63]);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use ::base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};

    #[test]
    fn it_agrees_with_the_base64_crate() {
        let bytes: Vec<u8> = (0..=255).chain((0..=255).rev()).collect();
        for length in 0..bytes.len() {
            let ours = super::encode(&bytes[..length]);
            assert_eq!(ours, STANDARD_NO_PAD.encode(&bytes[..length]).as_bytes());
        }
    }
}
