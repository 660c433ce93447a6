//! Connections that nobody else can read.

use redis::{Client, ClientTlsConfig, TlsCertificates};

use super::RedisBuilder;
use crate::store::Error;

impl RedisBuilder {
    /// The certificates that a server's is checked by, as PEM, in place of those that the machine trusts.
    ///
    /// For `rediss://` and `rediss-cluster://` URLs; anything else does not look at them.
    #[must_use]
    #[cfg_attr(docsrs, doc(cfg(feature = "redis-tls")))]
    pub fn root_certificate(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.certificates.root_cert = Some(pem.into());
        self
    }

    /// The certificate, with those that vouch for it, and the key that this client shows to a server that asks for
    /// them (`tls-auth-clients`), both as PEM.
    #[must_use]
    #[cfg_attr(docsrs, doc(cfg(feature = "redis-tls")))]
    pub fn client_certificate(
        mut self,
        certificate: impl Into<Vec<u8>>,
        key: impl Into<Vec<u8>>,
    ) -> Self {
        self.certificates.client_tls = Some(ClientTlsConfig {
            client_cert: certificate.into(),
            client_key: key.into(),
        });
        self
    }
}

/// None: the roots of the machine, and no certificate of this client.
pub(super) fn none() -> TlsCertificates {
    TlsCertificates {
        client_tls: None,
        root_cert: None,
    }
}

/// A client of a `rediss://` URL.
pub(super) fn client(url: &str, certificates: &TlsCertificates) -> Result<Client, Error> {
    Client::build_with_tls(url, certificates.clone()).map_err(Error::other)
}
