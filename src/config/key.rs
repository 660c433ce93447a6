//! The key of a limit of a file, and the requests that it does not count.

use std::sync::Arc;

use http::Request;

use super::{file::Exempt, in_use::InUse};
use crate::key::{AnyKey, Extracted, Key, KeyExtractor, MissingKey, Networks};

/// A key, and the requests that are exempt, in one extractor: one call by pointer.
#[derive(Clone)]
pub(super) struct FileKey {
    key: AnyKey,
    exempt: Option<Arc<ExemptRequests>>,
    /// Kept by requests as well as by the file.
    _in_use: Arc<InUse>,
}

struct ExemptRequests {
    paths: Vec<String>,
    networks: Networks,
}

impl FileKey {
    pub(super) fn new(key: AnyKey, exempt: &Exempt, in_use: Arc<InUse>) -> Self {
        let requests = || ExemptRequests {
            paths: exempt.paths.clone(),
            networks: exempt.networks.iter().copied().collect(),
        };
        Self {
            key,
            exempt: (!exempt.is_empty()).then(|| Arc::new(requests())),
            _in_use: in_use,
        }
    }

    fn is_exempt<B>(&self, exempt: &ExemptRequests, req: &Request<B>) -> Result<bool, MissingKey> {
        if exempt.paths.iter().any(|path| path == req.uri().path()) {
            return Ok(true);
        }
        if exempt.networks.is_empty() {
            return Ok(false);
        }
        let client = self.key.client(req).ok_or_else(no_peer)?;
        Ok(exempt.networks.contain(client))
    }
}

/// Otherwise nobody would be exempt, and nobody would notice.
#[cold]
fn no_peer() -> MissingKey {
    MissingKey::misconfigured(
        "networks are exempt, and the peer's address is not in the request: serve axum with \
         `into_make_service_with_connect_info::<SocketAddr>()`, or insert the peer's `SocketAddr` into the request's extensions",
    )
}

impl<B> KeyExtractor<Request<B>> for FileKey {
    fn extract(&self, req: &Request<B>) -> Result<Extracted, MissingKey> {
        match &self.exempt {
            Some(exempt) if self.is_exempt(exempt, req)? => Ok(Extracted::Exempt),
            _ => self.key.extract(req),
        }
    }

    #[inline(always)]
    fn key_at_hand(&self, req: &Request<B>) -> Option<Key> {
        match self.exempt {
            None => self.key.key_at_hand(req),
            Some(_) => None,
        }
    }
}
