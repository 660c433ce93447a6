//! The TLS settings of a Redis server.

use std::{fs, path::Path};

/// A TLS port and its certificate.
#[derive(Clone, Debug)]
pub struct Tls {
    pub port: u16,
    /// The certificate of the server, and the only one that it trusts, as PEM.
    pub certificate: String,
    /// The key of the certificate.
    pub key: String,
    /// `true` if clients must present a certificate.
    pub asks_clients: bool,
}

impl Tls {
    /// Returns the arguments of a server whose files are in that folder.
    pub fn arguments(&self, folder: &Path) -> Vec<String> {
        let file = |name: &str, text: &str| {
            let path = folder.join(name);
            fs::write(&path, text).unwrap();
            path.to_str().expect("a path in UTF-8").to_owned()
        };
        let certificate = file("cert.pem", &self.certificate);
        let key = file("key.pem", &self.key);
        let asks = if self.asks_clients { "yes" } else { "no" };
        let settings = [
            ("--tls-port", self.port.to_string().as_str()),
            ("--tls-cert-file", &certificate),
            ("--tls-key-file", &key),
            ("--tls-ca-cert-file", &certificate),
            ("--tls-auth-clients", asks),
        ]
        .map(|(name, value)| [name.to_owned(), value.to_owned()]);
        settings.into_iter().flatten().collect()
    }
}
