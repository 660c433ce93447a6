//! The partition key of a response: it identifies a limited key without revealing it.

use std::sync::Arc;

use crate::key::Key;

/// A policy's secret, and the partition key of the request that an outcome is about.
///
/// A pointer, because few policies have one and all are copied.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Partition(Arc<Inner>);

#[derive(PartialEq, Eq, Hash)]
struct Inner {
    secret: [u8; 32],
    digest: Option<[u8; Partition::LENGTH]>,
}

impl Partition {
    pub(super) const LENGTH: usize = 16;

    /// Takes a secret of any length.
    pub(super) fn new(secret: &[u8]) -> Self {
        Self(Arc::new(Inner {
            secret: *blake3::hash(secret).as_bytes(),
            digest: None,
        }))
    }

    /// Returns the partition of `key`, under the same secret.
    #[cold]
    pub(super) fn for_key(&self, key: &Key) -> Self {
        let secret = self.0.secret;
        Self(Arc::new(Inner {
            secret,
            digest: Some(key.digest_under(&secret)),
        }))
    }

    pub(super) fn digest(&self) -> Option<&[u8; Self::LENGTH]> {
        self.0.digest.as_ref()
    }
}
