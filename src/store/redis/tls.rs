//! TLS: certificates of the server and of this client.

use std::time::Duration;

use redis::{Client, ClientTlsConfig, ConnectionAddr, ErrorKind, TlsCertificates};

use super::{RedisBuilder, builder::invalid, error::store_error};
use crate::store::StoreError;

impl<Rule> RedisBuilder<Rule> {
    /// Sets the root certificates, as PEM, that a server's certificate is verified against, instead
    /// of the system's.
    ///
    /// Used by `rediss://`, `rediss-cluster://` and `rediss-sentinel://` URLs; others ignore it.
    ///
    /// ```no_run
    /// use tollgate::{TokenBucket, store::Redis};
    ///
    /// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = Redis::<TokenBucket>::builder("rediss://redis.internal")
    ///     .root_certificate(std::fs::read("/etc/ssl/internal-ca.pem")?)
    ///     .connect()
    ///     .await?;
    /// # let _ = store; Ok(()) }
    /// ```
    #[cfg_attr(docsrs, doc(cfg(feature = "redis-tls")))]
    pub fn root_certificate(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.settings.certificates.root_cert = Some(pem.into());
        self
    }

    /// Sets the certificate chain and the key of this client, both as PEM, for servers with
    /// `tls-auth-clients`.
    #[cfg_attr(docsrs, doc(cfg(feature = "redis-tls")))]
    pub fn client_certificate(
        mut self,
        certificate: impl Into<Vec<u8>>,
        key: impl Into<Vec<u8>>,
    ) -> Self {
        self.settings.certificates.client_tls = Some(ClientTlsConfig {
            client_cert: certificate.into(),
            client_key: key.into(),
        });
        self
    }

    /// Uses TLS for the master of a `rediss-sentinel://` URL, but not for its sentinels.
    ///
    /// Others on the network can then read and change the answers of the sentinels. Set a
    /// [`root_certificate`](Self::root_certificate) that signs your servers only: with the system's
    /// roots, a forged answer could lead to any host that has a valid certificate.
    #[cfg_attr(docsrs, doc(cfg(feature = "redis-tls")))]
    pub fn plain_sentinels(mut self) -> Self {
        self.settings.plain_sentinels = true;
        self
    }
}

/// Returns the default certificates: the system's roots, and none of this client.
pub(super) fn system_roots() -> TlsCertificates {
    TlsCertificates {
        client_tls: None,
        root_cert: None,
    }
}

/// Checks that `rustls` has a cryptography provider, and that certificates match their keys.
///
/// The client library checks this only when it connects. So this connects to an empty host name:
/// the library prepares TLS, rejects the name, and sends nothing.
///
/// # Panics
///
/// Without a cryptography provider.
pub(super) fn check(client: &Client) -> Result<(), StoreError> {
    let info = client.get_connection_info().clone();
    let ConnectionAddr::TcpTls {
        insecure,
        tls_params,
        ..
    } = info.addr().clone()
    else {
        return Ok(());
    };
    let no_host = ConnectionAddr::TcpTls {
        host: String::new(),
        port: 0,
        insecure,
        tls_params,
    };
    let client = Client::open(info.set_addr(no_host)).map_err(store_error)?;
    match client.get_connection_with_timeout(Duration::from_secs(1)) {
        Err(error) if error.kind() != ErrorKind::Io => Err(store_error(error)),
        _ => Ok(()),
    }
}

/// Returns the certificates, unless the root certificate is not PEM.
fn checked(certificates: &TlsCertificates) -> Result<TlsCertificates, StoreError> {
    const BEGIN: &[u8] = b"-----BEGIN CERTIFICATE-----";
    let is_none = |pem: &Vec<u8>| !pem.windows(BEGIN.len()).any(|part| part == BEGIN);
    // Otherwise no server would be trusted, without an error that says why.
    if certificates.root_cert.as_ref().is_some_and(is_none) {
        return Err(StoreError::other(
            "the text passed to `RedisBuilder::root_certificate` contains no certificate: expected PEM, with \
             `-----BEGIN CERTIFICATE-----`; pass the certificate of the authority that signed the server's",
        ));
    }
    Ok(certificates.clone())
}

/// Returns a client for a `rediss://` URL.
pub(super) fn client(url: &str, certificates: &TlsCertificates) -> Result<Client, StoreError> {
    Client::build_with_tls(url, checked(certificates)?).map_err(|error| invalid(url, &error))
}
