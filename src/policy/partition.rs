//! Which of a policy's keys a response speaks of, without saying who it is.

use std::sync::Arc;

use crate::key::Key;

/// A policy's secret, and whose share of the policy an outcome tells.
///
/// A pointer, since few policies have one and all are copied.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Partition(Arc<Told>);

#[derive(PartialEq, Eq, Hash)]
struct Told {
    secret: [u8; 32],
    digest: Option<[u8; Partition::LENGTH]>,
}

impl Partition {
    pub(super) const LENGTH: usize = 16;

    /// A secret of any length.
    pub(super) fn new(secret: &[u8]) -> Self {
        Self(Arc::new(Told {
            secret: *blake3::hash(secret).as_bytes(),
            digest: None,
        }))
    }

    /// The same secret, telling of `key`.
    #[cold]
    pub(super) fn of(&self, key: &Key) -> Self {
        let secret = self.0.secret;
        Self(Arc::new(Told {
            secret,
            digest: Some(key.digest_under(&secret)),
        }))
    }

    pub(super) fn digest(&self) -> Option<&[u8; Self::LENGTH]> {
        self.0.digest.as_ref()
    }
}
