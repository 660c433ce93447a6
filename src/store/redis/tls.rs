//! Connections that nobody else can read.

use std::time::Duration;

use redis::{Client, ClientTlsConfig, ConnectionAddr, ErrorKind, TlsCertificates};

use super::{RedisBuilder, failure, url};
use crate::store::Error;

impl RedisBuilder {
    /// The certificates that a server's is checked by, as PEM, in place of those that the machine trusts.
    ///
    /// For `rediss://`, `rediss-cluster://` and `rediss-sentinel://` URLs; anything else does not look at them.
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

    /// Asks the sentinels of a `rediss-sentinel://` URL without TLS, and reaches the master alone by it.
    ///
    /// What they tell can then be read and changed on its way. That leads nowhere where no certificate is trusted but those of the
    /// servers; with the roots of the machine, it leads to whoever has a certificate for an address.
    #[must_use]
    #[cfg_attr(docsrs, doc(cfg(feature = "redis-tls")))]
    pub fn plain_sentinels(mut self) -> Self {
        self.plain_sentinels = true;
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

/// Sees that there is cryptography, and that certificates and keys go together, of which the client says nothing before it
/// connects. So it is told to connect to nobody: it gets ready, finds that this is no name, and asks no network.
///
/// # Panics
///
/// Where there is no cryptography.
pub(super) fn check(client: &Client) -> Result<(), Error> {
    let info = client.get_connection_info().clone();
    let ConnectionAddr::TcpTls {
        insecure,
        tls_params,
        ..
    } = info.addr().clone()
    else {
        return Ok(());
    };
    let nobody = ConnectionAddr::TcpTls {
        host: String::new(),
        port: 0,
        insecure,
        tls_params,
    };
    let nobody = Client::open(info.set_addr(nobody)).map_err(failure::error)?;
    match nobody.get_connection_with_timeout(Duration::from_secs(1)) {
        Err(error) if error.kind() != ErrorKind::Io => Err(failure::error(error)),
        _ => Ok(()),
    }
}

/// The certificates of a builder, if there are any where there should be.
fn checked(certificates: &TlsCertificates) -> Result<TlsCertificates, Error> {
    const BEGIN: &[u8] = b"-----BEGIN CERTIFICATE-----";
    let is_none = |pem: &Vec<u8>| !pem.windows(BEGIN.len()).any(|part| part == BEGIN);
    // Else nobody would be trusted, and nothing said why.
    if certificates.root_cert.as_ref().is_some_and(is_none) {
        return Err(Error::other(
            "what `RedisBuilder::root_certificate` was given holds no certificate: expected PEM, with \
             `-----BEGIN CERTIFICATE-----` in it; give it that of the authority that vouches for the server",
        ));
    }
    Ok(certificates.clone())
}

/// A client of a `rediss://` URL.
pub(super) fn client(url: &str, certificates: &TlsCertificates) -> Result<Client, Error> {
    Client::build_with_tls(url, checked(certificates)?).map_err(|error| url::wrong(url, &error))
}
