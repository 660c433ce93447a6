//! A hasher for fingerprints, which are hashes already.

use std::hash::Hasher;

/// Uses a fingerprint as its own hash.
#[derive(Default)]
pub(super) struct OfFingerprint(u64);

impl Hasher for OfFingerprint {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, fingerprint: u64) {
        self.0 = fingerprint;
    }
}
